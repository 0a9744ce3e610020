"""The points of a sweep as a table: where each stands, and when all are done."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO


@dataclass(frozen=True, kw_only=True)
class Point:
    """One run of a sweep. directory: where its results lie, runs/<sweep>/<id>. flops: of its main training, training
    FLOPs of a target token times the budget in tokens; 0 where unknown, and then it has no estimate before it runs."""

    id: str
    directory: Path
    flops: float


def save_points(directory: Path, points: Sequence[Point]) -> None:
    """Write `sweep.json` into the sweep's directory, by which `make status` finds its points."""
    raise NotImplementedError


def load_points(directory: Path) -> list[Point]:
    """The points that `save_points` wrote."""
    raise NotImplementedError


@contextmanager
def live_table(points: Sequence[Point], out: TextIO, *, at_once: int = 1) -> Iterator[Callable[[str], None]]:
    """Show the table from a thread while the block runs, and once more at its end; gives a function that writes a line
    above it. On a terminal it is redrawn in place; elsewhere each change of state is a line, and the table comes every
    ten minutes. at_once: points that run side by side, for the estimate of what is left.
    """
    yield lambda text: None
