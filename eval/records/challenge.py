"""The file challenge.csv of a challenge set: scores of each kind of changed line, and of the same lines unchanged."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.records.scores import field_names, load_rows, row_cells, write_csv

CHALLENGE_FILE = "challenge.csv"
MIN_LINES = 20  # of fewer lines, a bootstrap interval is much too narrow: of one line it has no width
PLAIN = "plain"  # the kind of the unchanged lines of a challenge set


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of changed line.

    title: its name in reports.
    any_case: it is scored without regard to case.
    """

    title: str
    any_case: bool = False


KINDS = {  # in the order in which reports have them
    "upper": Kind(title="upper case", any_case=True),
    "title": Kind(title="title", any_case=True),
    "full_stop": Kind(title="no full stop"),
    "typos": Kind(title="typos"),
    "word": Kind(title="one word"),
    "number": Kind(title="a number"),
    "url": Kind(title="a URL"),
    "emoji": Kind(title="emoji"),
}


@dataclass(frozen=True, kw_only=True)
class ChallengeRow:
    """A system's chrF++ on one kind of changed line of one pair.

    kind: a name of KINDS.
    n_test: lines of the kind.
    plain: score of the translations of the unchanged lines.
    changed: score of the translations of the changed lines.
    loss: plain minus changed, with the bounds of its 95 % interval and the p-value by paired bootstrap.
    """

    pair: str
    system: str
    kind: str
    n_test: int
    plain: float
    changed: float
    loss: float
    ci_low: float
    ci_high: float
    p_value: float
    signature: str

    @property
    def has_interval(self) -> bool:
        """False if the lines are too few for the interval and the p-value to say anything."""
        return self.n_test >= MIN_LINES


def save_challenge(directory: Path, rows: Sequence[ChallengeRow]) -> None:
    """Write challenge.csv, in the order given."""
    names = field_names(ChallengeRow)
    write_csv(directory / CHALLENGE_FILE, names, [row_cells(row, names) for row in rows])


def load_challenge(directory: Path) -> list[ChallengeRow]:
    """Read challenge.csv. Raises ValueError with the file, line and field of a value that cannot be read."""
    return load_rows(directory / CHALLENGE_FILE, ChallengeRow)
