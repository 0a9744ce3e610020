"""Comparison of two directories of translations of the same test sets: scores, differences, table."""

import csv
import json

import pytest

from eval.score.before_after import METRICS, changes, save_changes, text_table
from eval.score.significance import compare, resample

REFERENCES = [f"the cat number {number} sat on the mat" for number in range(30)]
WORSE = [line.replace("mat", "dog") if number % 3 else line for number, line in enumerate(REFERENCES)]


def write(directory, hypotheses, references=REFERENCES):
    directory.mkdir()
    rows = [{"source": "", "hypothesis": h, "reference": r} for h, r in zip(hypotheses, references, strict=True)]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (directory / "de-en.jsonl").write_text(text, encoding="utf-8")
    return directory


def test_changes_are_those_of_the_paired_bootstrap(tmp_path):
    before, after = write(tmp_path / "before", REFERENCES), write(tmp_path / "after", WORSE)
    rows = changes(before, after, {"de-en": "en"}, n_resamples=100)
    assert [row.metric for row in rows] == list(METRICS)
    for row in rows:
        old, new = resample([REFERENCES, WORSE], REFERENCES, "en", row.metric, n_resamples=100)
        assert (row.before, row.after, row.n_test) == (old.score, new.score, 30)
        assert row.before == pytest.approx(100)
        assert row.delta_low <= row.delta == row.after - row.before < 0
        assert row.p_value == compare(new, old).p_value
    save_changes(tmp_path / "changes.csv", rows, {"experts_after": 8})
    with (tmp_path / "changes.csv").open(encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    assert [(row["metric"], row["experts_after"]) for row in read] == [("bleu", "8"), ("chrf++", "8")]
    assert read[0]["delta"] == f"{rows[0].delta:.4f}"
    header, first, _ = text_table(rows).splitlines()
    assert header.split()[:4] == ["pair", "metric", "before", "after"]
    assert first.startswith("de-en  bleu    100.00 ±0.00")
    assert f"−{-rows[0].delta:.2f}" in first


def test_other_references_are_no_comparison(tmp_path):
    before = write(tmp_path / "before", REFERENCES)
    after = write(tmp_path / "after", WORSE, references=WORSE)
    with pytest.raises(ValueError, match=r"pair='de-en': .* are of other references; translate one test set"):
        changes(before, after, {"de-en": "en"}, n_resamples=100)
