"""The definitions that pipeline.corpus.cleaning.codepoints computes for many texts, for one text in plain Python."""

import re
import unicodedata

# Unicode white space, control characters, and the byte order mark. Zero-width characters stay, because Khmer separates
# words by them, and joiners change the letters of Hindi.
_SPACES = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ufeff]+")


class _Essence(dict[int, int | None]):
    """A translation table that removes punctuation, spaces and invisible characters. It grows as it is used."""

    def __missing__(self, char: int) -> int | None:
        kept = None if unicodedata.category(chr(char))[0] in "PZC" else char
        self[char] = kept
        return kept


class _Letters(dict[int, int | None]):
    """A translation table that removes everything but letters and combining marks (vowel signs are marks)."""

    def __missing__(self, char: int) -> int | None:
        kept = char if unicodedata.category(chr(char))[0] in "LM" else None
        self[char] = kept
        return kept


_ESSENCE, _LETTERS = _Essence(), _Letters()


def normalize_text(text: str) -> str:
    """Return the text in NFC, with one space for each run of spaces and control characters, and none at its ends."""
    return _SPACES.sub(" ", unicodedata.normalize("NFC", text)).strip()


def letter_share(text: str) -> float:
    """Return the share of letters and combining marks among the characters that are not spaces, from 0 to 1."""
    visible = len(text) - text.count(" ")
    return len(text.translate(_LETTERS)) / visible if visible else 0.0


def essence(text: str) -> str:
    """Return the case-folded NFKC text without punctuation, spaces and control characters. It may be empty."""
    return unicodedata.normalize("NFKC", text).casefold().translate(_ESSENCE)
