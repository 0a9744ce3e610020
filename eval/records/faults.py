"""The files faults.csv and faulty_lines.csv: how many translations have which fault, and which ones these are."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.records.scores import field_names, load_rows, row_cells, write_csv

FAULTS_FILE, LINES_FILE = "faults.csv", "faulty_lines.csv"
REFERENCE = "reference"  # the system of rows that count the faults of the test set's own references

LANGUAGE, TRUNCATED = "wrong_language", "truncated"
FAULTS = {  # titles by name, in the order in which reports have them
    LANGUAGE: "wrong language",
    "empty": "empty",
    "copied": "copied",
    "repeated": "repeating",
    TRUNCATED: "cut off",
}


@dataclass(frozen=True, kw_only=True)
class FaultRow:
    """Counts of a system's faulty translations of one pair's test set.

    n_test: lines of the test set.
    judged: lines whose language was judged: those long enough, 0 where `not_judged` gives a reason.
    wrong_language: judged lines that are surely in another language than the target.
    empty: lines without a character.
    copied: lines with a letter that are the source apart from case and spaces.
    repeated: lines with an n-gram that recurs, and recurs less often in the source.
    truncated: lines that decoding ended at its limit of length; None if the translations do not record it.
    faulty: lines with at least one of these faults, as far as they are recorded.
    length_ratio: characters of all translations for one character of the references.
    not_judged: reason why languages are not judged for this pair, empty where they are. The row of REFERENCE has the
        counts that led to the reason.
    """

    pair: str
    system: str
    n_test: int
    judged: int
    wrong_language: int
    empty: int
    copied: int
    repeated: int
    truncated: int | None
    faulty: int
    length_ratio: float
    not_judged: str


@dataclass(frozen=True, kw_only=True)
class FaultyLine:
    """One fault of one translation.

    line: number of the line in the test set, from 1.
    fault: a name of FAULTS.
    degree: how bad it is: for `repeated` how often the n-gram occurs, else the characters of the translation, or of the
        source of an empty one.
    language: for `wrong_language` the language that the text is taken for, else empty.
    """

    pair: str
    system: str
    line: int
    fault: str
    degree: int
    language: str


def save_faults(directory: Path, rows: Sequence[FaultRow], lines: Sequence[FaultyLine]) -> None:
    """Write both files into a directory, in the order given."""
    for name, row_type, records in ((FAULTS_FILE, FaultRow, rows), (LINES_FILE, FaultyLine, lines)):
        names = field_names(row_type)
        write_csv(directory / name, names, [row_cells(record, names) for record in records])


def load_faults(directory: Path) -> list[FaultRow]:
    """Read faults.csv of a run; no rows without the file, which older versions did not write."""
    return load_rows(directory / FAULTS_FILE, FaultRow) if (directory / FAULTS_FILE).is_file() else []


def load_faulty_lines(directory: Path) -> list[FaultyLine]:
    """Read faulty_lines.csv of a run; no lines without faults.csv. Raises ValueError if only the lines are missing."""
    return load_rows(directory / LINES_FILE, FaultyLine) if (directory / FAULTS_FILE).is_file() else []
