"""The data of a run alone, as a user starts it: `make data CORPUS=path/to/dir`, a directory and no YAML."""

import csv
import gzip
import re
import subprocess

import pytest

from eval.records.funnel import RULES
from pipeline.config import ROOT

SECRET = "Wer dies liest, kennt einen Satz ohne Lizenz"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A corpus of two pairs without dev or test sets, in a directory with an awkward name."""
    place = tmp_path_factory.mktemp("data")
    corpus = place / "my o'corpus"
    corpus.mkdir()
    lines = (ROOT / "data" / "sample" / "train.tsv").read_text(encoding="utf-8").splitlines()
    rows = [dict(zip(lines[0].split("\t"), line.split("\t"), strict=True)) for line in lines[1:]]
    for src, count, write in (("de", 240, write_aligned), ("tr", 230, write_tsv)):
        write(corpus, src, [(row[src], row["en"]) for row in rows if row[src] and row["en"]][:count])
    same = [(f"Number {word} of five", f"Number {word} of five") for word in ("one", "two", "three", "four", "five")]
    (corpus / "web.de-en.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in [*same, *[(SECRET, "A secret line")] * 4]))
    return place


def write_aligned(corpus, src, rows):
    for place, code in enumerate((src, "en")):
        (corpus / f"{src}-en.{code}").write_text("".join(row[place] + "\n" for row in rows), encoding="utf-8")


def write_tsv(corpus, src, rows):
    (corpus / f"{src}-en.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in rows), encoding="utf-8")


@pytest.fixture(scope="module")
def process(place):
    # -o: the environment is there, whatever the times of its files
    near = "'corpus.rules.near_duplicates={threshold:0.8,num_hashes:128,shingle_words:2}'"  # the one rule that is off
    words = [
        near,
        "corpus.keep_removed=true",
        "report.show=false",
        f"runtime.artifacts={place}/artifacts",
        f"runtime.runs={place}/runs",
    ]
    command = ["make", "--no-print-directory", "-o", ".venv/.ready", "data", "RECIPE=smoke"]
    command += [f"CORPUS={place}/my o'corpus", "ARGS=" + " ".join(words)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300)
    assert process.returncode == 0, process.stderr
    return process


@pytest.fixture(scope="module")
def results(place, process):
    return place / "runs" / "smoke-my-o-corpus"


def test_the_table_is_printed_and_nothing_is_trained(place, process):
    lines = process.stdout.splitlines()
    assert [line.split()[0] for line in lines[-3:]] == ["de-en", "tr-en", "all"]
    assert not (place / "artifacts" / "train").exists()
    assert len(list((place / "artifacts" / "encode").glob("*/encode.json"))) == 2


def test_where_the_removed_rows_are_is_said(process):
    path = re.search(r"^removed rows of de-en: (.*)$", process.stderr, re.MULTILINE)[1]
    with gzip.open(path, "rt", encoding="utf-8") as file:
        assert "identical\tNumber one of five\tNumber one of five\n" in file.readlines()


def test_every_row_is_accounted_for(results):
    with (results / "funnel.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    rules = [name for name in rows[0] if name not in ("pair", "split", "read", "changed", "kept", "too_many_tokens")]
    counts = {(row["pair"], row["split"]): row for row in rows}
    assert set(counts) == {(pair, split) for pair in ("de-en", "tr-en") for split in ("train", "dev", "test")}
    sizes = {pair: sum(int(counts[pair, split]["read"]) for split in ("train", "dev", "test")) for pair, _ in counts}
    assert sizes == {"de-en": 240 + 9, "tr-en": 230}
    for pair in sizes:
        train = counts[pair, "train"]
        assert int(train["read"]) == int(train["kept"]) + sum(int(train[rule]) for rule in rules)
        dev = counts[pair, "dev"]
        assert int(dev["kept"]) + int(dev["held_out"] or 0) == int(counts[pair, "test"]["kept"]) == 20
    assert (counts["de-en", "train"]["identical"], counts["de-en", "train"]["duplicate"]) == ("5", "3")
    assert set(rules) <= set(RULES), "a rule that the page does not explain"


def test_the_page_names_sources_but_shows_no_sentence_where_that_is_switched_off(results):
    page = (results / "data.html").read_text(encoding="utf-8")
    assert "Content-Security-Policy" in page
    assert "<svg" in page
    assert ">web" in page
    assert "not stated" in page
    for file in ("data.html", "data.json", "funnel.csv"):
        assert SECRET not in (results / file).read_text(encoding="utf-8")
    assert {"funnel.png", "funnel.svg"} <= {path.name for path in results.iterdir()}
