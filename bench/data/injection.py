"""Injection of noise into parallel rows: a share of them is damaged in four ways, and it is known which."""

import random
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from typing import NamedTuple

MISALIGNED, WRONG_LANGUAGE, TRUNCATED, COPIED = "misaligned", "wrong language", "truncated", "copied"
KINDS = (MISALIGNED, WRONG_LANGUAGE, TRUNCATED, COPIED)
_FEW_WORDS = 4  # a target with fewer is not truncated, because half of it may be a translation still


class Row(NamedTuple):
    """A row. kind: the noise in it, empty for none."""

    src: str
    tgt: str
    kind: str = ""


def inject(rows: Sequence[tuple[str, str]], foreign: Sequence[str], share: float, seed: int) -> list[Row]:
    """Return the rows in their order, a share of them with a damaged target, in equal parts of KINDS.

    misaligned: the target is that of another misaligned row.
    wrong language: the target is a text of `foreign`.
    truncated: the first half of the target's words.
    copied: the target is the source.

    Raises ValueError if the rows are too few for all kinds, and for a share that is none.
    """
    if not 0 < share < 1:
        raise ValueError(f"--noise {share} is no share of the rows; choose more than 0 and less than 1, as 0.2")
    count = int(share * len(rows) / len(KINDS))
    order = list(range(len(rows)))
    random.Random(seed).shuffle(order)
    long = [row for row in order if len(rows[row][1].split()) >= _FEW_WORDS][:count]
    if count < 2 or len(long) < count or not foreign:
        raise ValueError(
            f"{len(rows)} rows and {len(foreign)} texts of another language are too few for {share:.0%} of noise of "
            f"{len(KINDS)} kinds; give more rows of {_FEW_WORDS} words or more"
        )
    truncated = set(long)
    further_rows = (row for row in order if row not in truncated)
    places = {kind: list(islice(further_rows, count)) for kind in KINDS if kind != TRUNCATED}
    damaged = [Row(*row) for row in rows]
    for row in long:
        src, tgt = rows[row]
        words = tgt.split()
        damaged[row] = Row(src, " ".join(words[: len(words) // 2]), TRUNCATED)
    texts = cycle(random.Random(seed).sample(list(foreign), len(foreign)))
    for row, text in zip(places[WRONG_LANGUAGE], texts, strict=False):
        damaged[row] = Row(rows[row][0], text, WRONG_LANGUAGE)
    for row in places[COPIED]:
        damaged[row] = Row(rows[row][0], rows[row][0], COPIED)
    for row, text in _rotated(rows, places[MISALIGNED]):
        damaged[row] = Row(rows[row][0], text, MISALIGNED)
    return damaged


def _rotated(rows: Sequence[tuple[str, str]], places: Sequence[int]) -> Iterator[tuple[int, str]]:
    """Yield each row with the target of the next one of them whose target is another text."""
    for number, row in enumerate(places):
        further = (places[(number + step) % len(places)] for step in range(1, len(places)))
        yield row, next(rows[other][1] for other in further if rows[other][1] != rows[row][1])
