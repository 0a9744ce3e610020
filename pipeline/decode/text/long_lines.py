"""Splitting of a text that is too long for a model into parts that are short enough."""

import re
import unicodedata
from collections.abc import Callable, Iterator

_SENTENCE_END = re.compile(r"[.!?…؟۔։።][\"'»”’)\]]*\s+|[。！？｡।॥]+[」』”’）]*\s*")
_SPACE = re.compile(r"\s+")
_NO_SPACES = {"Hani", "Hira", "Kana", "Bopo"}  # scripts whose sentences follow each other without a space
_CHARACTER = 8  # code points that one character commonly has at most
_SPACED = "Hang"  # Korean has spaces between sentences, although it has Chinese characters, too


def split_text(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Return parts of about the same length that fit. The text is cut near its middle until every part fits.

    A cut is at the end of a sentence if there is one in the middle half, else at a space, else between two characters.
    One character alone is never cut, so it is returned even if it does not fit.
    fits: tells if a text is short enough.
    """
    text = text.strip()
    if fits(text) or len(text) < 2:
        return [text] if text else []
    at = _cut(text)
    return split_text(text[:at], fits) + split_text(text[at:], fits)


def joiner(code: str) -> str:
    """Return the text between two sentences of a language: a space, or nothing for Chinese and Japanese."""
    from pipeline.corpus.cleaning.scripts import scripts_of

    scripts = scripts_of(code)
    return "" if _NO_SPACES.intersection(scripts) and _SPACED not in scripts else " "


def _cut(text: str) -> int:
    middle = len(text) // 2
    for boundary in (_SENTENCE_END, _SPACE):
        ends = [match.end() for match in boundary.finditer(text, len(text) // 4, len(text) * 3 // 4 + 1)]
        if ends:
            return min(ends, key=lambda end: abs(end - middle))
    farthest = min(max(len(text) // 4, _CHARACTER), middle - 1)
    return next((at for at in _outwards(middle, farthest) if _separable(text, at)), middle)


def _outwards(middle: int, farthest: int) -> Iterator[int]:
    yield middle
    for distance in range(1, farthest + 1):
        yield from (middle - distance, middle + distance)


def _separable(text: str, at: int) -> bool:
    """Tell if a text may be cut before this place, because no combining mark or joiner follows."""
    joined = "\u200d" in text[at - 1 : at + 1]
    return not joined and not unicodedata.category(text[at]).startswith("M")
