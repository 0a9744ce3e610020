"""Text files with other line ends than they seem to have."""

from pathlib import Path

import pytest

from tests.unit.corpus.readers.written import rows_of


@pytest.mark.parametrize("count", [2, 50_000])
def test_line_ends_of_old_macs_are_an_error(tmp_path: Path, count: int) -> None:
    """Such a file of 50,000 rows was once read as one row, without an error."""
    path = tmp_path / "a.tsv"
    for end in ("\r", ""):
        path.write_bytes(("\r".join(["ja\tyes"] * count) + end).encode())
        with pytest.raises(ValueError, match=r"a\.tsv: line 1: lines end in CR alone, as on old Macs; convert"):
            rows_of(path, "tsv")
    path.write_bytes(("de\ten\r" + "ja\tyes\r" * count + "\n").encode())
    with pytest.raises(ValueError, match=r"a\.tsv: line 1: lines end in CR alone"):
        rows_of(path, "multiway_tsv")


def test_a_few_carriage_returns_within_lines_are_text(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(b"ja\ryes\tno\r\n" + b"a\tb\n" * 300_000 + b"c\rd\r\te")
    rows = rows_of(path, "tsv")
    assert (rows[0], rows[-1], len(rows)) == (("ja\ryes", "no"), ("c\rd\r", "e"), 300_002)
    path.write_bytes(b"ja\tyes\r")
    assert rows_of(path, "tsv") == [("ja", "yes")]
