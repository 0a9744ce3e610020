"""The check that texts are in the language of their column."""

import numpy as np

from eval.language_id import unjudged, wrong_confidence
from eval.language_model import language_model
from pipeline.corpus.cleaning.characters import LETTER
from pipeline.corpus.cleaning.codepoints import Bools, Texts
from pipeline.corpus.config import LanguageRule

__all__ = ["unjudged", "wrong_language"]


def wrong_language(
    texts: Texts,
    code: str,
    *,
    min_probability: float = LanguageRule.min_probability,
    min_letters: int = LanguageRule.min_letters,
) -> Bools:
    """Return a mask of the texts that are surely in another language than `code`: [N].

    min_probability: least `wrong_confidence` of such a text.
    min_letters: texts with fewer letters are not judged, nor is any text of a code that `unjudged` names.
    """
    wrong = np.zeros(len(texts), dtype=bool)
    if unjudged(code):
        return wrong
    judged = np.flatnonzero(texts.count((texts.flags & LETTER) > 0) >= min_letters)
    if len(judged):
        array = texts.array if len(judged) == len(texts) else texts.array.take(judged)
        wrong[judged] = wrong_confidence(language_model().probabilities(array), code) >= min_probability
    return wrong
