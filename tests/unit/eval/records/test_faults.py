from pathlib import Path

import pytest

from eval.records.faults import FaultRow, FaultyLine, load_faults, load_faulty_lines, save_faults

COUNTS = {"n_test": 40, "judged": 38, "wrong_language": 3, "empty": 1, "copied": 0, "repeated": 2, "faulty": 5}
ROWS = [
    FaultRow(pair="de-en", system="moe", truncated=None, length_ratio=0.9412, not_judged="", **COUNTS),
    FaultRow(pair="de-en", system="reference", truncated=0, length_ratio=1.0, not_judged="too short, mostly", **COUNTS),
]
LINES = [FaultyLine(pair="de-en", system="moe", line=7, fault="wrong_language", degree=31, language="fr")]


def test_both_files_are_read_as_they_were_written(tmp_path: Path) -> None:
    save_faults(tmp_path, ROWS, LINES)
    assert load_faults(tmp_path) == ROWS
    assert load_faulty_lines(tmp_path) == LINES
    head, first, _ = (tmp_path / "faults.csv").read_text(encoding="utf-8").splitlines()
    assert head.startswith("pair,system,n_test,judged,wrong_language,")
    assert first == "de-en,moe,40,38,3,1,0,2,,5,0.9412,"


def test_runs_of_older_versions_have_no_counts(tmp_path: Path) -> None:
    assert load_faults(tmp_path) == []
    assert load_faulty_lines(tmp_path) == []


def test_counts_without_their_lines_are_an_error(tmp_path: Path) -> None:
    save_faults(tmp_path, ROWS, LINES)
    (tmp_path / "faulty_lines.csv").unlink()
    with pytest.raises(ValueError, match=r"faulty_lines\.csv does not exist; run the stage score"):
        load_faulty_lines(tmp_path)


def test_a_value_that_is_no_number_is_named_with_its_line(tmp_path: Path) -> None:
    save_faults(tmp_path, ROWS, [])
    path = tmp_path / "faults.csv"
    path.write_text(path.read_text(encoding="utf-8").replace("2,,5,", "2,many,5,"), encoding="utf-8")
    with pytest.raises(ValueError, match=r"faults\.csv:2 truncated='many' is not a whole number"):
        load_faults(tmp_path)
