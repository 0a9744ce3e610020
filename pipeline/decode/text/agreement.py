"""Choice among the translations of a sentence by their agreement with each other (minimum Bayes risk)."""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from pipeline.decode.config import DecodeConfig

if TYPE_CHECKING:
    from eval.score.metrics import Scorer


def best_by_agreement(texts: Sequence[str], config: DecodeConfig, target: str) -> list[int]:
    """Return the places of at most `n_best` different texts, the one with the highest mean utility first.

    The earlier text wins a tie. Equal texts count as often as they occur, and the first of them is returned.
    texts: translations of one sentence. They are candidates and samples in one (Eikema and Aziz, arXiv:2005.10283).
    target: code of their language, which decides about the tokenizer of BLEU.
    """
    from eval.score.agreement import mean_utilities  # late, because it loads sacreBLEU

    utilities = mean_utilities(_scorer(config.utility, target), texts)
    first = {text: place for place, text in reversed(list(enumerate(texts)))}
    order = sorted(first.values(), key=lambda place: (-utilities[place], place))
    return order[: config.n_best]


@cache
def _scorer(utility: str, target: str) -> "Scorer":
    from eval.score.metrics import scorer_for

    return scorer_for(utility, target, by_sentence=True)
