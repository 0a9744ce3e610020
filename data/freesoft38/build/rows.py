"""A row of the corpus, and the rules that decide which rows are kept."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .text import UNSPACED, count_words, normalise

MAX_WORDS = 150
MIN_LETTERS = 0.35
MAX_RATIO = 3
# Characters are compared only where the shorter text has more than these: "Other" may be one long German word.
SHORT = 10
# A character of these scripts, or a Korean one, carries about as much as this many Latin letters.
WIDE = re.compile(f"{UNSPACED.pattern[:-1]}\uac00-\ud7af]")
WIDE_CHARACTER = 2.5


class Row(NamedTuple):
    """A foreign text and its English, with the source and the document that they come from."""

    foreign: str
    english: str
    source: str
    document: str


def length(text: str) -> float:
    """Return the number of characters, with those of wide scripts counted as 2.5."""
    return len(text) + (WIDE_CHARACTER - 1) * len(WIDE.findall(text))


def letter_share(text: str) -> float:
    """Return the share of letters among the characters that are no space."""
    characters = text.replace(" ", "")
    return sum(map(str.isalpha, characters)) / max(1, len(characters))


def is_clean(foreign: str, english: str) -> bool:
    """Say whether a pair of texts is likely to be a translation: by length, letters and difference."""
    words = count_words(foreign), count_words(english)
    if min(words) < 1 or max(words) > MAX_WORDS or foreign.lower() == english.lower():
        return False
    if min(letter_share(foreign), letter_share(english)) < MIN_LETTERS:
        return False
    lengths = length(foreign), length(english)
    if max(words) > MAX_RATIO * min(words):
        return False
    return min(lengths) <= SHORT or max(lengths) <= MAX_RATIO * min(lengths)


def keep_clean(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows that are clean, each pair of texts once."""
    pairs = set()
    for row in rows:
        pair = row.foreign, row.english
        if pair not in pairs and is_clean(*pair):
            pairs.add(pair)
            yield row


def normalised_pair(row: Row) -> tuple[str, str]:
    """Return both texts in the form in which duplicates are found."""
    return normalise(row.foreign), normalise(row.english)
