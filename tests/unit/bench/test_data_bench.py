"""The benchmark of data: it reads, cleans and encodes a small text, and its ratios come from rounds."""

import csv
import json
import subprocess
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest

from bench.data import cleaning, encoding, packing, reading
from bench.data.cleaning import PEER_PYTHON
from bench.data.corpus import SAMPLE, read_text
from bench.data.pairs import many_pairs, short_sentences, write_tsv
from bench.data.scale import OURS, PEER, PEER_BARE, PEER_SAME, QUICK, SAME, SENTENCEPIECE
from bench.data.table import CLEANING, COLUMNS, TO_PEER, judge, table
from bench.output import write_csv
from pipeline.config import ROOT
from pipeline.corpus.cleaning.codepoints import Texts

ROWS = 400


@pytest.fixture(scope="module")
def sentences():
    return short_sentences(SAMPLE / "train.tsv", "de", "en")


@pytest.fixture(scope="module")
def text():
    return read_text(None, ROWS)


def test_no_row_of_many_comes_twice_or_is_nearly_another(sentences):
    rows = [row for batch in many_pairs(sentences, 101_000) for row in zip(*batch.to_pydict().values(), strict=True)]
    assert len(set(rows)) == len(rows) == 101_000
    assert all(src and tgt for src, tgt in rows)
    words = [set(src.split()) for src, _ in rows[:500]]
    nearest = max(len(a & b) / len(a | b) for i, a in enumerate(words) for b in words[:i] if a & b)
    assert nearest < 0.8
    again = next(iter(many_pairs(sentences, 10)))
    assert list(zip(*again.to_pydict().values(), strict=True)) == rows[:10]
    with pytest.raises(ValueError, match="count=9 is more than the 4 pairs of 2 sentences; give more"):
        list(many_pairs(sentences.slice(0, 2), 9))


@pytest.mark.parametrize("name", ["train.tsv", "train.tsv.zst"])
def test_rows_are_written_as_lines(sentences, tmp_path, name):
    batches = list(many_pairs(sentences, 100_500))
    assert len(batches) == 2
    assert write_tsv(iter(batches), tmp_path / name) == 100_500
    with pa.input_stream(str(tmp_path / name)) as file:
        lines = file.read().decode().splitlines()
    assert lines == [f"{row['src']}\t{row['tgt']}" for batch in batches for row in batch.to_pylist()]


def test_text_of_a_file_holds_its_first_rows_out(tmp_path):
    path = tmp_path / "de-en.tsv"
    path.write_text("".join(f"Zeile {i}\tline {i}\tdoc\n" for i in range(900)), encoding="utf-8")
    text = read_text(path, 300)
    assert (text.pair.src, text.pair.tgt) == ("de", "en")
    assert text.held_out["dev"]["src"][0].as_py() == "Zeile 0"
    assert text.held_out["test"]["tgt"][299].as_py() == "line 499"
    assert text.train["src"].to_pylist() == [f"Zeile {i}" for i in range(500, 800)]
    with pytest.raises(ValueError, match="the name says no pair; name it as de-en"):
        read_text(tmp_path / "text.tsv", 300)


def test_cleaning_is_measured_on_the_same_rows(text, tmp_path):
    rows = {row["variant"]: row for row in cleaning.measure(text, replace(QUICK, rounds=1), tmp_path / "work")}
    assert list(rows) == [OURS, SAME, PEER, PEER_SAME, PEER_BARE]
    assert 0.9 * ROWS < rows[OURS]["kept"] <= rows[SAME]["kept"]
    for variant in (OURS, SAME):
        assert rows[variant]["rows"] == ROWS
        assert rows[variant]["seconds"] > 0
    if not PEER_PYTHON.exists():
        assert rows[PEER]["note"] == "not installed: bench/setup.sh data"
        assert "not installed" in table(judge(list(rows.values()), "cpu"))


@pytest.mark.skipif(not PEER_PYTHON.exists(), reason="make bench BENCH=data installs it")
def test_the_peer_applies_the_same_rules(tmp_path):
    lines = [
        ("Guten Tag", "Good day"),
        ("  Guten \u00a0 Tag ", "Good day"),  # the same row after normalisation of its spaces
        ("Datei", "Datei"),
        ("1234 5678 x", "1234 5678 y"),
        ("ja", "a very long translation"),
        ("", "empty"),
        ("a" * 1001, "b" * 1001),
    ]
    for side in (0, 1):
        (tmp_path / f"train.{side}").write_text("".join(f"{row[side]}\n" for row in lines), encoding="utf-8")
    job = {
        "inputs": [str(tmp_path / "train.0"), str(tmp_path / "train.1")],
        "directory": str(tmp_path),
        "nearest": False,
    }
    job |= {"normalise": True, "max_chars": 1000, "max_length_ratio": 6.0, "min_letters": 0.25}
    (tmp_path / "job.json").write_text(json.dumps(job), encoding="utf-8")
    command = [str(PEER_PYTHON), "-m", "bench.data.peer_opusfilter", str(tmp_path / "job.json")]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    assert cleaning._lines(tmp_path) == Counter({("Guten Tag", "Good day"): 1})


def test_encoding_is_measured_on_the_same_rows(text, tmp_path):
    rows = list(encoding.measure(text, replace(QUICK, threads=(1, 2), pieces=600), tmp_path / "work"))
    assert [(row["variant"], row["threads"]) for row in rows] == [
        (variant, threads) for threads in (1, 2) for variant in (SENTENCEPIECE, OURS)
    ]
    assert len({row["rows"] for row in rows}) == len({row["kept"] for row in rows}) == 1


def test_every_format_is_read_in_full(text, tmp_path):
    rows = {row["variant"]: row for row in reading.measure(text, QUICK, tmp_path)}
    assert list(rows) == list(reading.WRITERS)
    assert {row["kept"] for row in rows.values()} == {ROWS}


def test_packing_is_measured_on_the_same_rows(text, tmp_path):
    scale = replace(QUICK, mixture_pieces=600)
    rows = {row["variant"]: row for row in judge(list(packing.measure(text, scale, tmp_path)), "cpu")}
    assert list(rows) == ["d=256", "d=512"]
    for row in rows.values():
        assert 0 < row["useful"] == row["measured"] <= 1
        assert row["pairs_per_second"] > 0
        assert 0 < row["kept"] <= row["rows"] == ROWS


def test_ratios_are_medians_of_rounds(tmp_path):
    common = {"section": "cleaning", "text": "t", "threads": 1, "rows": 600_000, "kept": 5, "note": ""}
    times_of = {
        SAME: [2, 4, 3],
        PEER_SAME: [10, 40, 3],
        OURS: [12, 11, 10],
        PEER: [120, 99, 100],
        PEER_BARE: [None] * 3,
    }
    rounds = [
        {**common, "variant": variant, "round": number, "seconds": seconds, "note": "" if seconds else "broken"}
        for variant, times in times_of.items()
        for number, seconds in enumerate(times)
    ]
    rows = {row["variant"]: row for row in judge(rounds, "cpu")}
    assert rows[SAME]["pairs_per_second"] == 200_000
    assert (rows[PEER_SAME]["measured"], rows[PEER_SAME]["limit"], rows[PEER_SAME]["verdict"]) == (5, TO_PEER, "ok")
    assert rows[PEER]["measured"] == 10
    assert rows[OURS]["measured"] == pytest.approx(600_000 / 11)
    assert (rows[OURS]["limit"], rows[OURS]["verdict"]) == (CLEANING, "missed")
    assert (rows[PEER_BARE]["pairs_per_second"], rows[PEER_BARE]["note"]) == (None, "broken")
    write_csv(list(rows.values()), COLUMNS, tmp_path / "data.csv")
    with (tmp_path / "data.csv").open(encoding="utf-8", newline="") as file:
        assert [row["verdict"] for row in csv.DictReader(file)] == ["", "ok", "missed", "ok", ""]


def test_normal_forms_of_the_peer_are_compared_in_ours(tmp_path):
    (tmp_path / "kept.src").write_text("ein\u2028Zeichen\ne\u0301\n", encoding="utf-8")
    (tmp_path / "kept.tgt").write_text("one\tmark\ne\n", encoding="utf-8")
    normal = Texts.normalized(pa.array(["ein\u2028Zeichen", "e\u0301"])).array.to_pylist()
    assert normal[1] == "é"
    assert cleaning._lines(tmp_path) == Counter({(normal[0], "one mark"): 1, ("é", "e"): 1})
