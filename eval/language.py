"""Language pairs and codes for reports: the two codes of a pair, its label, and the writing direction of a language.

The end of a sentence is known here too.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Literal

# Scripts (ISO 15924) that are written from right to left, and the languages that usually use one of them.
_RTL_SCRIPTS = frozenset({"adlm", "arab", "aran", "hebr", "mand", "nkoo", "rohg", "samr", "syrc", "thaa"})
_RTL_LANGUAGES = frozenset({"ar", "arz", "ary", "apc", "ckb", "dv", "fa", "he", "ks", "nqo", "pnb", "prs"})
_RTL_LANGUAGES |= frozenset({"ps", "sd", "syr", "ug", "ur", "yi"})
_RTL_LANGUAGES |= frozenset({"acm", "aeb", "afb", "ajp", "apd", "arb", "arq", "ars", "ayl", "shu"})  # Arabic
_RTL_LANGUAGES |= frozenset({"azb", "bal", "bej", "bqi", "brh", "glk", "haz", "hno", "khw", "lah", "lki", "lrc"})
_RTL_LANGUAGES |= frozenset(
    {"lad", "luz", "mzn", "ota", "pes", "rhg", "sdh", "skr", "trw", "uig", "urd", "heb", "div", "kas", "snd", "ydd"}
)
_FULL_STOPS = (
    ".\u3002\uff0e\uff61\u0964\u06d4\u0589\u1362"  # of Latin, Han, Devanagari, Arabic, Armenian and Ethiopic script
)
TURKIC = ("tr", "tur", "az", "aze", "azj", "crh")  # languages where the capital of i is İ
_PRIMARY_SUBTAG = re.compile(r"[a-z]{2,3}")


def split_pair(pair: str) -> tuple[str, str]:
    """Return the source and target code of `src-tgt` (BCP-47 in its usual case: zh-Hans-en, en-pt-BR) or `src:tgt`.

    Raises ValueError unless exactly one hyphen can separate the two codes.
    """
    if ":" in pair:
        source, _, target = pair.partition(":")
        if source and target and ":" not in target:
            return source, target
        raise ValueError(f"pair={pair!r} is not of the form src:tgt")
    subtags = pair.split("-")
    # Only a primary language subtag is two or three lower-case letters; scripts and regions have capitals.
    starts = [i for i, subtag in enumerate(subtags) if i > 0 and _PRIMARY_SUBTAG.fullmatch(subtag)]
    if len(starts) != 1 or not subtags[0]:
        raise ValueError(f"pair={pair!r} does not say where the target language starts; write src:tgt")
    return "-".join(subtags[: starts[0]]), "-".join(subtags[starts[0] :])


def text_direction(code: str) -> Literal["ltr", "rtl"]:
    """Return `rtl` or `ltr` for a BCP-47 code: the value of the HTML attribute dir."""
    primary, *subtags = code.lower().split("-")
    scripts = [subtag for subtag in subtags if len(subtag) == 4 and subtag.isalpha()]
    is_rtl = scripts[0] in _RTL_SCRIPTS if scripts else primary in _RTL_LANGUAGES
    return "rtl" if is_rtl else "ltr"


def pair_labels(pairs: Sequence[str], languages: Mapping[str, tuple[str, str]] | None = None) -> dict[str, str]:
    """Return the shortest label that tells each pair from the others.

    This is the language code that differs, if all pairs have the same source or the same target; else the pair itself.
    """
    sides = {pair: (languages or {}).get(pair) or split_pair(pair) for pair in pairs}
    if len({target for _, target in sides.values()}) == 1:
        return {pair: source for pair, (source, _) in sides.items()}
    if len({source for source, _ in sides.values()}) == 1:
        return {pair: target for pair, (_, target) in sides.items()}
    return {pair: pair for pair in pairs}


def without_full_stop(text: str) -> str:
    """Return a text without the full stop at its end. A text that ends otherwise, or in an ellipsis, is unchanged."""
    stripped = text.rstrip()
    if stripped[-1:] in _FULL_STOPS and stripped[-2:-1] not in _FULL_STOPS:
        return stripped[:-1].rstrip()
    return text
