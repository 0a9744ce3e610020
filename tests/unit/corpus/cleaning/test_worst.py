"""The worst rows of a cleaned pair: scores by hand, and the files that are written without these rows."""

import gzip
import json
from math import exp

import numpy as np
import pyarrow as pa
import pytest

from pipeline.corpus.bitext import SCHEMA, write_bitext
from pipeline.corpus.cleaning.worst import dual_score, places, remove_worst, worst_rows
from pipeline.corpus.funnel import funnel
from pipeline.corpus.learned_config import Limits
from tests.corpora import bitext_rows

NAN = float("nan")
ROWS = [(f"s{row}", f"t{row}") for row in range(5)]


def test_the_score_is_that_of_the_paper():
    """arXiv:1809.00197: e to the power of minus (|HA - HB| + (HA + HB) / 2)."""
    scores = dual_score(np.array([0.0, 2.0, 2.0]), np.array([0.0, 2.0, 5.0]))
    assert scores == pytest.approx([1.0, exp(-2.0), exp(-6.5)])


def test_each_half_gives_the_same_share_whatever_its_models_think_of_all_rows():
    scores = np.array([0.1, 0.9, 0.2, 0.7, 0.4, 0.8, 0.3, 0.6])  # every row of the first half is above 0.5
    is_second = np.array([True, False] * 4)
    assert places(scores, is_second).tolist() == [0, 0.75, 0.25, 0.25, 0.75, 0.5, 0.5, 0]
    assert worst_rows(places(scores, is_second), Limits(share=0.5)).tolist() == [0, 7, 2, 3]


@pytest.mark.parametrize(
    ("share", "min_score", "rows"),
    [
        (0.0, None, []),
        (0.5, None, [3, 0]),
        (0.74, None, [3, 0]),
        (0.75, None, [3, 0, 2]),
        (0.25, 0.5, [3, 0, 2]),
        (0.0, 0.2, [3]),
    ],
)
def test_the_lowest_scores_go_and_rows_without_one_stay(share, min_score, rows):
    scores = np.array([0.2, NAN, 0.2, 0.1, 0.9])
    assert worst_rows(scores, Limits(share=share, min_score=min_score)).tolist() == rows


@pytest.fixture
def cleaned(tmp_path):
    """Five rows of two sources, three and two, and a file of the rows that the rules removed."""
    path = tmp_path / "cleaned"
    path.mkdir()
    for split, rows in (("train", ROWS), ("dev", ROWS[:1]), ("test", ROWS[:2])):
        batch = pa.RecordBatch.from_arrays([pa.array(side) for side in zip(*rows, strict=True)], schema=SCHEMA)
        write_bitext(path / f"{split}.arrow", [batch])
    train = {"read": 6, "changed": 0, "removed": {"identical": 1}, "kept": 5}
    sources = [{"name": name, "kept": kept, "examples": {}} for name, kept in (("web", 3), ("books", 2))]
    content = {"pair": "de-en", "train": train, "dev": {"kept": 1}, "test": {"kept": 2}}
    (path / "funnel.json").write_text(json.dumps({**content, "examples": {}, "sources": sources}))
    with gzip.open(path / "removed.tsv.gz", "wt") as file:
        file.write("identical\ta\ta\n")
    return path


def without(cleaned, out, scores, limits, **options):
    out.mkdir()
    scores = np.array(scores)
    parts = {"forward": np.arange(5.0)}
    remove_worst(cleaned, scores, parts, limits, rule="low_score", **{"keep_removed": False, **options}, out=out)
    return funnel(out)


def test_rows_go_and_are_counted_with_the_worst_as_examples(cleaned, tmp_path):
    out = tmp_path / "out"
    record = without(cleaned, out, [0.5, 0.3, NAN, 0.9, 0.1], Limits(share=0.5), keep_removed=True)
    assert bitext_rows(out, "train") == [ROWS[0], ROWS[2], ROWS[3]]
    assert (bitext_rows(out, "dev"), bitext_rows(out, "test")) == (ROWS[:1], ROWS[:2])
    assert record["train"] == {"read": 6, "changed": 0, "removed": {"identical": 1, "low_score": 2}, "kept": 3}
    assert record["examples"]["low_score"] == [["s4", "t4"], ["s1", "t1"]]
    assert [(source["kept"], source["examples"]["low_score"]) for source in record["sources"]] == [
        (2, [["s1", "t1"]]),
        (1, [["s4", "t4"]]),
    ]
    with gzip.open(out / "removed.tsv.gz", "rt") as file:
        assert file.read() == "identical\ta\ta\nlow_score\ts1\tt1\nlow_score\ts4\tt4\n"
    with gzip.open(out / "scores.tsv.gz", "rt") as file:
        lines = [line.rstrip("\n").split("\t") for line in file]
    assert lines[0] == ["score", "forward", "removed", "source", "target"]
    assert lines[2:4] == [["0.3", "1", "1", "s1", "t1"], ["", "2", "0", "s2", "t2"]]


def test_the_files_do_not_depend_on_the_clock(cleaned, tmp_path, monkeypatch):
    scores = [0.5, 0.3, NAN, 0.9, 0.1]
    without(cleaned, tmp_path / "a", scores, Limits(share=0.5), keep_removed=True)
    monkeypatch.setattr("time.time", lambda: 5.0)
    without(cleaned, tmp_path / "b", scores, Limits(share=0.5), keep_removed=True)
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes(), file.name


def test_a_pair_that_loses_all_its_rows_is_an_error(cleaned, tmp_path):
    with pytest.raises(
        ValueError, match=r"pair de-en: all 5 rows have a score below corpus.learned.min_score=2.0; low"
    ):
        without(cleaned, tmp_path / "out", [0.5] * 5, Limits(share=0.0, min_score=2.0))
