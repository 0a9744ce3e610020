"""`runs/<name>`: laid out from a report, without losing what somebody put there."""

import json
import logging

from pipeline.config import load_config
from pipeline.corpus.config import Rules
from pipeline.dag.artifact import Artifact
from pipeline.dag.run_directory import lay_out, publish_run
from pipeline.dag.run_record import data_record
from pipeline.dag.status import read_status, recorded
from tests.corpora import clean_pair, prepare


def report(tmp_path, key, files):
    path = tmp_path / key
    path.mkdir()
    for name, text in files.items():
        (path / name).write_text(text)
    return Artifact(stage="report", key=key, path=path, content="-")


def test_a_new_report_replaces_the_old_one_and_keeps_notes(tmp_path):
    run = tmp_path / "runs" / "demo"
    run.parent.mkdir()
    publish_run(report(tmp_path, "one", {"report.html": "1", "old.png": "1", "manifest.json": "{}"}), run)
    (run / "notes").mkdir()
    (run / "notes" / "mine.txt").write_text("keep me")
    publish_run(report(tmp_path, "two", {"report.html": "2"}), run)
    files = {
        str(f.relative_to(run)): f.read_text() for f in run.rglob("*") if f.is_file() and not f.name.startswith(".")
    }
    assert files == {"report.html": "2", "notes/mine.txt": "keep me"}
    assert {p.name for p in run.parent.iterdir()} == {"demo", ".demo.lock"}


def test_laying_out_keeps_the_status_that_is_being_written_and_says_nothing_of_it(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    run = tmp_path / "runs" / "demo"
    with recorded(run):
        publish_run(report(tmp_path, "one", {"report.html": "1"}), run)
        assert read_status(run).state == "running"
    assert read_status(run).state == "done"
    assert (run / "report.html").exists()
    assert caplog.text == ""


def test_the_same_report_is_left_alone(tmp_path):
    run = tmp_path / "runs" / "demo"
    run.parent.mkdir()
    artifact = report(tmp_path, "one", {"report.html": "1"})
    publish_run(artifact, run)
    (run / "report.html").write_text("edited")
    publish_run(artifact, run)
    assert (run / "report.html").read_text() == "edited"


def test_data_is_laid_out_beside_the_results_of_training(tmp_path):
    run = tmp_path / "runs" / "demo"
    run.parent.mkdir()
    publish_run(report(tmp_path, "one", {"report.html": "1", "funnel.csv": "old"}), run)
    lay_out(report(tmp_path, "two", {"data.html": "2", "funnel.csv": "new", "manifest.json": "{}"}), run)
    files = {file.name: file.read_text() for file in run.iterdir() if not file.name.startswith(".")}
    assert files == {"report.html": "1", "data.html": "2", "funnel.csv": "new"}
    publish_run(report(tmp_path, "three", {"report.html": "3", "funnel.csv": "newer"}), run)
    files = {file.name: file.read_text() for file in run.iterdir() if not file.name.startswith(".")}
    assert files == {"report.html": "3", "data.html": "2", "funnel.csv": "newer"}


def test_examples_are_of_sources_whose_licence_allows_it(tmp_path):
    def rows(name):
        same = [(f"{name} {word} is the same", f"{name} {word} is the same") for word in ("one", "two")]
        return [*same, *[(f"Ein Satz von {name}", f"A sentence of {name}")] * 3]

    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for name in ("web", "books"):
        (corpus / f"{name}.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in rows(name)))
    for split in ("dev", "test"):
        (corpus / f"{split}.tsv").write_text(f"Noch {split}\tMore {split}\n")
    entry = "{{split: {split}, path: {name}.tsv, format: tsv, columns: [de, en]{more}}}"
    entries = [
        entry.format(split="train", name="web", more=", name: web"),
        entry.format(split="train", name="books", more=", name: books, licence: MPL-2.0"),
        *(entry.format(split=split, name=split, more="") for split in ("dev", "test")),
    ]
    (corpus / "manifest.yaml").write_text("name: x\nfiles:\n" + "".join(f"  - {entry}\n" for entry in entries))
    cleaned = clean_pair(corpus, "de-en", tmp_path / "store", rules=Rules(held_out=None))
    prepared = prepare(corpus, "de-en", tmp_path / "store")
    funnel = json.loads((cleaned.path / "funnel.json").read_text())
    duplicate = [["Ein Satz von books", "A sentence of books"]] * 2
    assert funnel["sources"][1]["examples"]["duplicate"] == duplicate
    assert [source["kept"] for source in funnel["sources"]] == [1, 1]
    assert len(funnel["examples"]["identical"]) == 3
    record = data_record(load_config(["recipes=smoke"]), prepared, {prepared.pairs[0]: cleaned}, {})
    assert record["examples"]["de-en"] == {
        "identical": [["books one is the same"] * 2, ["books two is the same"] * 2],
        "duplicate": duplicate,
    }
    assert "of web" not in json.dumps(record)
