"""Cutting a text that is too long for a model into parts that are not."""

import re
import unicodedata
from collections.abc import Callable, Iterator

_SENTENCE_END = re.compile(r"[.!?…؟۔։።][\"'»”’)\]]*\s+|[。！？｡।॥]+[」』”’）]*\s*")
_SPACE = re.compile(r"\s+")
_NO_SPACES = {"Hani", "Hira", "Kana", "Bopo"}  # scripts whose sentences follow each other without a space
_CHARACTER = 8  # code points that one character may well have
_SPACED = "Hang"  # Korean has Chinese characters, too


def split_text(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Parts that fit, of about the same length: cut in two near the middle until they do.

    A cut is at the end of a sentence if there is one in the middle half, else at a space, else between two characters.
    One character alone is never cut.
    """
    text = text.strip()
    if fits(text) or len(text) < 2:
        return [text] if text else []
    at = _cut(text)
    return split_text(text[:at], fits) + split_text(text[at:], fits)


def joiner(code: str) -> str:
    """What stands between two sentences of a language."""
    from pipeline.corpus.cleaning.scripts import scripts_of

    scripts = scripts_of(code)
    return "" if _NO_SPACES.intersection(scripts) and _SPACED not in scripts else " "


def _cut(text: str) -> int:
    middle = len(text) // 2
    for places in (_SENTENCE_END, _SPACE):
        ends = [match.end() for match in places.finditer(text, len(text) // 4, len(text) * 3 // 4 + 1)]
        if ends:
            return min(ends, key=lambda end: abs(end - middle))
    farthest = min(max(len(text) // 4, _CHARACTER), middle - 1)
    return next((at for at in _outwards(middle, farthest) if _separable(text, at)), middle)


def _outwards(middle: int, farthest: int) -> Iterator[int]:
    yield middle
    for distance in range(1, farthest + 1):
        yield from (middle - distance, middle + distance)


def _separable(text: str, at: int) -> bool:
    """Whether the character here begins something: it is no mark of the one before."""
    joined = "\u200d" in text[at - 1 : at + 1]
    return not joined and not unicodedata.category(text[at]).startswith("M")
