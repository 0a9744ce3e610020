"""The check that texts are in a script of their language.

N texts, L code points of all of them.
"""

from functools import cache

import langcodes
import numpy as np
import numpy.typing as npt
from fontTools.unicodedata import Scripts
from langcodes.data_dicts import LIKELY_SUBTAGS

from pipeline.corpus.cleaning.characters import LETTER, NUM_CODES
from pipeline.corpus.cleaning.codepoints import Bools, Texts

# Unicode scripts of the letters, by codes of ISO 15924 that stand for a way of writing. Simplified and traditional
# Chinese have one Unicode script, so this check cannot tell them apart.
_WAYS_OF_WRITING = {
    "Jpan": ("Hani", "Hira", "Kana"),
    "Hrkt": ("Hira", "Kana"),
    "Kore": ("Hang", "Hani"),
    "Jamo": ("Hang",),
    "Hans": ("Hani", "Bopo"),
    "Hant": ("Hani", "Bopo"),
    "Hanb": ("Hani", "Bopo"),
    "Aran": ("Arab",),
    "Latf": ("Latn",),
    "Latg": ("Latn",),
    "Cyrs": ("Cyrl",),
    "Geor": ("Geor", "Geok"),
    "Geok": ("Geor", "Geok"),
}
_NEUTRAL = ("Zyyy", "Zinh", "Zzzz")  # letters and marks of no script, or of several
_LATIN_NAMES = 0.8  # share of Latin letters that a text in another script may have: names, terms, commands


def scripts_of(code: str) -> tuple[str, ...]:
    """Return the Unicode scripts of a language: its subtag's, or else CLDR's most likely one; () if unknown."""
    tag = langcodes.Language.get(code)
    script = tag.script
    if script is None:
        languages = {tag.language, langcodes.standardize_tag(tag.language or "und", macro=True).split("-")[0]}
        if languages.isdisjoint(LIKELY_SUBTAGS):
            return ()
        script = tag.maximize().script
    scripts = _WAYS_OF_WRITING.get(script or "", (script or "",))
    return scripts if set(scripts) <= set(_names()) else ()


def wrong_script(texts: Texts, code: str, *, min_share: float = 0.5, min_letters: int = 4) -> Bools:
    """Return a mask of the texts with less than min_share of their letters in the scripts of `code`: [N].

    Letters and marks of no single script do not count. If `code` is not written in Latin, Latin letters do not count
    either, up to _LATIN_NAMES of all letters. So a text that names a program passes, and one in Latin alone does not.

    min_letters: texts with fewer letters are not judged, nor are texts of an unknown language.
    """
    expected = scripts_of(code)
    if not expected:
        return np.zeros(len(texts), dtype=bool)
    names = _names()
    scripts_L = _table()[texts.codes]
    letters_L = ((texts.flags & LETTER) > 0) & (scripts_L >= len(_NEUTRAL))
    letters_N = texts.count(letters_L)
    right_N = texts.count(letters_L & np.isin(scripts_L, [names.index(script) for script in expected]))
    counted_N = letters_N.astype(np.float64)
    if "Latn" not in expected:
        latin_N = texts.count(letters_L & (scripts_L == names.index("Latn")))
        counted_N -= np.minimum(latin_N, _LATIN_NAMES * letters_N)
    wrong: Bools = (letters_N >= min_letters) & (right_N < min_share * counted_N)
    return wrong


@cache
def _names() -> tuple[str, ...]:
    """Return the ISO 15924 codes of all Unicode scripts, the neutral ones first."""
    return (*_NEUTRAL, *sorted(set(Scripts.VALUES) - set(_NEUTRAL)))


@cache
def _table() -> npt.NDArray[np.uint8]:
    """Return the script of every code point, as an index of `_names`."""
    index = {name: place for place, name in enumerate(_names())}
    values = np.array([index[name] for name in Scripts.VALUES], dtype=np.uint8)
    return np.repeat(values, np.diff([*Scripts.RANGES, NUM_CODES]))
