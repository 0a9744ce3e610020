"""Text files whose rows are not what they seem."""

from pathlib import Path

import pytest

from tests.unit.corpus.readers.written import rows_of


@pytest.mark.parametrize("count", [2, 50_000])
def test_line_ends_of_old_macs_are_an_error(tmp_path: Path, count: int) -> None:
    """Once 50,000 rows were one, without a word."""
    path = tmp_path / "a.tsv"
    for end in ("\r", ""):
        path.write_bytes(("\r".join(["ja\tyes"] * count) + end).encode())
        with pytest.raises(ValueError, match=r"a\.tsv: line 1: lines end in CR alone, as on old Macs; convert"):
            rows_of(path, "tsv")
    path.write_bytes(("de\ten\r" + "ja\tyes\r" * count + "\n").encode())
    with pytest.raises(ValueError, match=r"a\.tsv: line 1: lines end in CR alone"):
        rows_of(path, "multiway_tsv")


def test_a_few_of_them_within_lines_are_text(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(b"ja\ryes\tno\r\n" + b"a\tb\n" * 300_000 + b"c\rd\r\te")
    found = rows_of(path, "tsv")
    assert (found[0], found[-1], len(found)) == (("ja\ryes", "no"), ("c\rd\r", "e"), 300_002)
    path.write_bytes(b"ja\tyes\r")
    assert rows_of(path, "tsv") == [("ja", "yes")]
