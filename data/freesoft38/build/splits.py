"""Development and test sets, and the training rows that they exclude."""

import csv
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from .rows import Row, normalised_pair
from .text import normalise, word_runs

HELP_TEST, HELP_DEV = range(12), range(12, 20)
GNOME_TEST, GNOME_DEV = range(20), range(20, 32)
# English words of a test sentence.
TEST_WORDS = range(5, 61)
TRAIN_RUN = 8
TAIL_TEST, TAIL_DEV, TAIL_MIN_TEST = 400, 200, 100
MIN_TRAIN = 150


def bucket(document: str) -> int:
    """Return the number from 0 to 99 that a page's name falls to: the first 32 bits of its MD5 modulo 100."""
    return int(hashlib.md5(document.encode(), usedforsecurity=False).hexdigest()[:8], 16) % 100


def is_held_page(row: Row) -> bool:
    """Say whether a row's document belongs to a development or test set, in any language."""
    if row.source == "lohelp":
        return bucket(row.document) < HELP_DEV.stop
    return row.source == "gnomehelp" and bucket(row.document) < GNOME_DEV.stop


def in_test(row: Row, buckets: range) -> bool:
    """Say whether a row may be test data: of a page of the split, 5 to 60 words long."""
    return bucket(row.document) in buckets and len(row.english.split()) in TEST_WORDS


class TestSentence(NamedTuple):
    """A line of tests.tsv. split: dev or test; sha256: the first 16 digits of that of the English text."""

    split: str
    sha256: str


def pinned_tests(table: Path) -> list[TestSentence]:
    """Return the sentences of the multi-way sets, in their order.

    They were chosen at random among the blocks of 5 to 60 words that all languages have, without shared 6-word runs.
    """
    with table.open(encoding="utf-8", newline="") as stream:
        return [TestSentence(**line) for line in csv.DictReader(stream, delimiter="\t")]


def sentence_digest(english: str) -> str:
    """Return the digest by which tests.tsv names a sentence."""
    return hashlib.sha256(english.encode()).hexdigest()[:16]


def multiway_table(rows: Mapping[str, Sequence[Row]], digests: Sequence[str], buckets: range) -> list[list[str]]:
    """Return English sentences with their translations; one that a language lacks is left out.

    rows: kept help rows by language; the order of the columns is theirs. digests: of the sentences, in order.
    buckets: a translation on a page of the split is preferred to one on another page.
    """
    chosen = set(digests)
    english: dict[str, str] = {}
    translations: list[dict[str, str]] = []
    for language_rows in rows.values():
        candidates = [(sentence_digest(row.english), row) for row in language_rows]
        candidates = [(digest, row) for digest, row in candidates if digest in chosen]
        candidates.sort(key=lambda candidate: bucket(candidate[1].document) not in buckets)
        english.update((digest, row.english) for digest, row in candidates)
        translations.append({digest: row.foreign for digest, row in reversed(candidates)})
    everywhere = [digest for digest in digests if translations and all(digest in texts for texts in translations)]
    return [[english[digest], *(texts[digest] for texts in translations)] for digest in everywhere]


def tail_sets(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Return development and test rows of a language from its GNOME pages; both empty if they are too few."""
    test = [row for row in rows if in_test(row, GNOME_TEST)][:TAIL_TEST]
    if len(test) < TAIL_MIN_TEST:
        return [], []
    return [row for row in rows if in_test(row, GNOME_DEV)][:TAIL_DEV], test


class HeldOut:
    """The texts of all development and test sets, in the form in which training rows are compared with them."""

    def __init__(self) -> None:
        self.english: set[str] = set()
        self.foreign: dict[str, set[str]] = {}
        self.runs: set[str] = set()

    def add(self, foreign: str, english: str, language: str) -> None:
        """Hold out a pair of texts."""
        normalised = normalise(english)
        self.english.add(normalised)
        self.foreign.setdefault(language, set()).add(normalise(foreign))
        self.runs |= word_runs(normalised, TRAIN_RUN)

    def leaks(self, row: Row, language: str) -> bool:
        """Say whether a row's English or foreign text is held out, or its English shares 8 words in a row with one."""
        english = normalise(row.english)
        if english in self.english or normalise(row.foreign) in self.foreign.get(language, ()):
            return True
        return not self.runs.isdisjoint(word_runs(english, TRAIN_RUN))


def training_rows(rows: Iterable[Row], language: str, held_out: HeldOut) -> Iterator[Row]:
    """Yield the rows that may be trained on: no held-out page or text, each normalised pair once."""
    pairs = set()
    for row in rows:
        if is_held_page(row) or held_out.leaks(row, language):
            continue
        pair = normalised_pair(row)
        if pair not in pairs:
            pairs.add(pair)
            yield row
