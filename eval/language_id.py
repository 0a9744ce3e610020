"""The check that texts are in the language that they should be in. Cleaning and scoring share it."""

from functools import cache

import langcodes
import numpy as np
import numpy.typing as npt

from eval.language_model import Floats, language_model

# Languages that the model confuses. A text in one language of a group is accepted as any other of the same group.
# Measured on clean text (the multi-way and tail test sets of 38 languages, and 1,500 training rows of each): more than
# 0.2 % of one language were identified as the other, with a probability of at least 0.5. A language may be in two
# groups: Galician is confused with Portuguese and with Spanish, which are not confused with each other. The script
# check, not this one, finds text in the wrong script.
GROUPS = (
    ("bs", "hr", "sr", "sl"),  # 15 % of Croatian; one standard language until 1991, and Slovenian near it
    ("id", "ms"),  # 7 % of Indonesian; two standards of Malay
    ("zh", "yue", "wuu"),  # 7 % of traditional, 2 % of simplified Chinese; one writing for them all
    ("bg", "mk", "sr"),  # 3 % of Serbian in Cyrillic
    ("bg", "ru"),  # 0.7 %
    ("cs", "sk"),  # 2 %
    ("da", "nn", "no"),  # 0.8 % of Danish
    ("gom", "hi", "mr", "ne", "sa"),  # 1.5 % of Marathi; words that all of them took from Sanskrit
    ("as", "bn"),  # 1 %
    ("gl", "pt"),  # 0.9 % of Portuguese
    ("an", "es", "ext", "gl"),  # 0.5 % of Spanish
    ("ca", "ext", "oc"),  # 0.4 %
    ("lv", "ltg"),  # 0.6 %; Latgalian is close to a dialect
    ("af", "fy", "nl"),  # 0.6 %
    ("fa", "uzs"),  # 0.5 %
    # Not measured: labels of the model for languages that often have one code.
    ("ar", "ary", "arz"),
    ("el", "grc"),
    ("he", "hbo"),
    ("uz", "uzs"),
    ("ku", "sdh"),
    ("lij", "it", "vec"),
    ("en", "pcm"),
    ("de", "lb"),
    ("qu", "gug"),
)
_ALIASES = {"nb": "no", "fil": "tl"}  # the label of the model, by code
_ALL_SCRIPTS = ("sr", "zh")  # languages that the model knows in every script in which they are written
_DOUBT = 0.1  # a text stays if the expected language has this probability
_NO_LANGUAGE = "zxx"  # the model's label of numbers, markup and the like


def unjudged(code: str) -> str | None:
    """Return the reason why texts of this BCP-47 code are not judged, None if they are."""
    label = _label(code)
    if label not in language_model().labels:
        return f"the model does not know {code}"
    script = langcodes.Language.get(code).maximize().script
    if label not in _ALL_SCRIPTS and script != langcodes.Language.get(label).maximize().script:
        return f"the model does not know {label} in the script {script}"
    return None


def wrong_confidence(probability_NL: Floats, code: str) -> Floats:
    """Return how sure it is that each text is in another language than `code`: [N]. `unjudged` does not name `code`.

    It is the probability of the text's most probable language and of those that the model confuses with it. It is 0 if
    the most probable language is one that the model confuses with `code`, and if `code` has _DOUBT or more.

    probability_NL: probability of each language of the model for each text.
    """
    labels = language_model().labels
    expected_L = _alike()[labels.index(_label(code))]
    best_N = probability_NL.argmax(axis=1)
    rival_NL = _alike()[best_N] & ~expected_L
    confidence_N: Floats = np.where(rival_NL, probability_NL, 0).sum(axis=1)
    doubtful_N = probability_NL[:, expected_L].sum(axis=1) >= _DOUBT
    confidence_N[doubtful_N | expected_L[best_N] | (best_N == labels.index(_NO_LANGUAGE))] = 0
    return confidence_N


def are_alike(code: str, other: str) -> bool:
    """Return whether texts of two languages, which the model knows, are not held against each other."""
    labels = language_model().labels
    return bool(_alike()[labels.index(_label(code)), labels.index(_label(other))])


@cache
def _label(code: str) -> str:
    """Return the model's label of a language: that of its subtag, or else that of its macrolanguage."""
    language = code.split("-")[0]
    if language in language_model().labels:
        return language
    return _ALIASES.get(language) or langcodes.standardize_tag(language, macro=True).split("-")[0]


@cache
def _alike() -> npt.NDArray[np.bool_]:
    """Return a mask of the pairs of languages that are equal or in one group of GROUPS: [L, L]."""
    labels = language_model().labels
    result: npt.NDArray[np.bool_] = np.eye(len(labels), dtype=bool)
    for group in GROUPS:
        members = [labels.index(label) for label in group]
        result[np.ix_(members, members)] = True
    return result
