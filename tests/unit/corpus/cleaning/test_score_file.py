"""Files of scores that others computed: each row gets its own score, and every fault is named with its line."""

import gzip
import json

import numpy as np
import pyarrow as pa
import pytest

from pipeline.corpus.bitext import SCHEMA, write_bitext
from pipeline.corpus.cleaning.score_file import read_score_file, scores_of
from pipeline.corpus.languages import LangPair
from pipeline.corpus.learned_config import ScoreFiles
from pipeline.corpus.tables import Table, write_table

PAIR = LangPair("de", "en")
ROWS = [("Eins", "one"), (None, "nothing"), ("Zwei  ", "two"), ("Eins", "one"), ("Drei", "three"), ("Vier", "")]
CLEANED = [("Zwei", "two"), ("Eins", "one"), ("Neu", "new"), ("Drei", "three")]  # as normalisation leaves them
BICLEANER = "".join(f"http://a\t{de or ''}\t{en}\t0.{number}\n" for number, (de, en) in enumerate(ROWS, 1))
NUMBERS = "0.1\n0.2\n0.3\n0.4\n0.5\n0.6\n"
TEXTS = {"column": 1, "source_column": 2, "target_column": 3}


@pytest.fixture
def table(tmp_path):
    batch = pa.RecordBatch.from_arrays([pa.array(side) for side in zip(*ROWS, strict=True)], names=["de", "en"])
    write_table(Table(columns=("de", "en"), batches=iter([batch])), tmp_path / "train.parquet")
    return tmp_path / "train.parquet"


def read(tmp_path, table, text, name="scores.tsv", **settings):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    out, cleaned = tmp_path / "out", tmp_path / "cleaned"
    out.mkdir()
    read_score_file(path, ScoreFiles(files={"de-en": str(path)}, **settings), PAIR, [table], out)
    cleaned.mkdir()
    sides = [pa.array(side) for side in zip(*CLEANED, strict=True)]
    write_bitext(cleaned / "train.arrow", [pa.RecordBatch.from_arrays(sides, schema=SCHEMA)])
    counts = json.loads((out / "scores.json").read_text())
    return scores_of(cleaned, out), counts


@pytest.mark.parametrize(
    ("text", "name", "settings"),
    [
        (NUMBERS, "laser.txt", {}),
        (NUMBERS, "laser.txt.gz", {"column": 1}),
        (NUMBERS.replace("\n", "\r\n"), "laser.txt", {}),
        (BICLEANER, "bicleaner.tsv", {}),
        ("url\tsrc\ttrg\tbicleaner_ai_score\n" + BICLEANER, "bicleaner.tsv", {"column": "bicleaner_ai_score"}),
    ],
)
def test_line_n_is_the_score_of_row_n_whatever_the_rules_removed(tmp_path, table, text, name, settings):
    scores, counts = read(tmp_path, table, text, name, **settings)
    np.testing.assert_array_equal(scores, [0.3, 0.1, np.nan, 0.5])
    assert counts == {"lines": 6, "rows": 6, "rows_with_a_score": 5}


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("7e-1\tDrei\tthree\n-2\tZwei \ttwo\n0.5\tNeu\tnew\n", TEXTS),
        (
            "trg\tsrc\tscore\nthree\tDrei\t0.7\ntwo\tZwei\t-2\nnew\tNeu\t.5\n",
            {"column": "score", "source_column": "src", "target_column": "trg"},
        ),
    ],
)
def test_a_line_with_texts_finds_its_row_in_any_order(tmp_path, table, text, settings):
    scores, counts = read(tmp_path, table, text, **settings)
    np.testing.assert_array_equal(scores, [-2, np.nan, 0.5, 0.7])
    assert counts == {"lines": 3, "rows": 6, "rows_with_a_score": 2}


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("", {}, "scores.tsv has no lines with scores"),
        ("score\n", {"column": "score"}, "scores.tsv has no lines with scores"),
        (NUMBERS[4:], {}, r"has 5 scores, but the source has 6 rows of de-en; score the same file"),
        (NUMBERS.replace("0.3", "nan"), {}, r"line 3: the score 'nan' is no finite number; correct the line"),
        (NUMBERS.replace("0.6", "inf"), {}, r"line 6: the score 'inf' is no finite number"),
        (NUMBERS.replace("0.2", ""), {}, r"line 2: the score '' is no finite number"),
        (
            "score\n" + NUMBERS,
            {},
            r"line 1: the score 'score' is no finite number; if line 1 is a header, name the col",
        ),
        (BICLEANER, {"column": 2}, r"line 1: the score 'Eins' is no finite number"),
        (BICLEANER, {"column": 5}, r"line 1 has 4 columns, fewer than corpus.learned says"),
        (BICLEANER, {"column": "score"}, r"line 1 has no column score \(corpus.learned.column\), but http://a, Eins"),
        (
            "1\tFalsch\twrong\n",
            TEXTS,
            r"none of its 1 lines has the texts of one of the 6 rows of de-en; correct corpus",
        ),
        ("1\tZwei\n", TEXTS, r"line 1 has 2 columns"),
    ],
)
def test_a_fault_is_named(tmp_path, table, text, settings, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, table, text, **settings)
