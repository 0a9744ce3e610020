"""`runs/<name>`: laid out from a report, without losing what somebody put there."""

import json
import logging
from dataclasses import replace

import pytest

from eval.records.ending import unfinished_systems
from pipeline.config import ROOT, load_config
from pipeline.corpus.config import Rules
from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import FileEntry, Manifest, read_manifest
from pipeline.dag.artifact import Artifact
from pipeline.dag.corpus import Corpus, may_show
from pipeline.dag.run_directory import lay_out, publish_run
from pipeline.dag.run_record import data_record, run_record
from pipeline.dag.status import read_status
from pipeline.dag.status_file import recorded
from pipeline.dag.system import Trained, bilingual
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


def test_examples_are_of_sources_whose_licence_allows_it_or_of_the_users_own(tmp_path):
    def rows(name):
        same = [(f"{name} {word} is the same", f"{name} {word} is the same") for word in ("one", "two")]
        return [*same, *[(f"Ein Satz von {name}", f"A sentence of {name}")] * 3]

    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for name in ("web", "books", "mine"):
        (corpus / f"{name}.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in rows(name)))
    for split in ("dev", "test"):
        (corpus / f"{split}.tsv").write_text(f"Noch {split}\tMore {split}\n")
    entry = "{{split: {split}, path: {name}.tsv, format: tsv, columns: [de, en]{more}}}"
    entries = [
        entry.format(split="train", name="web", more=", name: web, licence: not to be shown"),
        entry.format(split="train", name="books", more=", name: books, licence: MPL-2.0"),
        entry.format(split="train", name="mine", more=", name: mine"),
        *(entry.format(split=split, name=split, more="") for split in ("dev", "test")),
    ]
    (corpus / "manifest.yaml").write_text("name: x\nfiles:\n" + "".join(f"  - {entry}\n" for entry in entries))
    cleaned = clean_pair(corpus, "de-en", tmp_path / "store", rules=Rules(held_out=None))
    prepared = prepare(corpus, "de-en", tmp_path / "store")
    funnel = json.loads((cleaned.path / "funnel.json").read_text())
    duplicate = [["Ein Satz von books", "A sentence of books"]] * 2
    assert funnel["sources"][1]["examples"]["duplicate"] == duplicate
    assert [source["kept"] for source in funnel["sources"]] == [1, 1, 1]
    assert len(funnel["examples"]["identical"]) == 3
    cleaned_pairs = {prepared.pairs[0]: cleaned}
    record = data_record(load_config(["recipes=smoke"]), prepared, cleaned_pairs, {})
    assert record["examples"]["de-en"] == {
        "identical": [["books one is the same"] * 2, ["books two is the same"] * 2, ["mine one is the same"] * 2],
        "duplicate": [*duplicate, ["Ein Satz von mine", "A sentence of mine"]],
    }
    assert "of web" not in json.dumps(record)
    hidden = load_config(["recipes=smoke", "report.show=false"])
    assert data_record(hidden, prepared, cleaned_pairs, {})["examples"] == {}
    for config, is_shown in ((load_config(["recipes=smoke"]), True), (hidden, False)):
        assert run_record(config, prepared, cleaned_pairs, {}, {})["sample_sentences"] == is_shown


def source_of(manifest, **changes):
    """Return a corpus of a manifest, and the description of its first source."""
    corpus = Corpus(
        manifest=manifest,
        added=(),
        notice="",
        pairs=(),
        tables=(),
        split_off={},
        held_out=None,
        test_texts=None,
    )
    licence = manifest.files[0].licence or manifest.licence
    return corpus, {"name": manifest.files[0].source or manifest.name, "licence": licence, **changes}


def test_text_that_may_be_trained_on_but_not_passed_on_is_never_shown():
    """Debian's package descriptions are a part of freesoft38 without a licence, so nothing of it is shown."""
    corpus, source = source_of(read_manifest(ROOT, ROOT / "data" / "freesoft38" / "manifest.yaml"))
    assert "not to be passed on or shown" in source["licence"]
    assert not may_show(corpus.manifests, source)


@pytest.mark.parametrize(
    ("entry", "is_shown"),
    [
        ({"paths": ("de-en.tsv",)}, True),
        ({"paths": ("de-en.tsv",), "licence": "MPL-2.0"}, True),
        ({"paths": ("de-en.tsv",), "licence": "CC-BY-NC-4.0"}, False),
        ({"paths": ("https://example.org/de-en.tsv",)}, False),
        ({"paths": ("de-en.tsv",), "archive": "https://example.org/all.zip"}, False),
        ({"dataset": "somebody/something"}, False),
    ],
)
def test_own_text_is_what_states_no_licence_and_was_not_fetched(entry, is_shown):
    manifest = Manifest(name="x", files=(FileEntry(split="test", format="tsv", **entry),))
    corpus, source = source_of(manifest)
    assert may_show(corpus.manifests, source) == is_shown


def test_the_record_says_when_models_would_have_stopped_and_where_baselines_change(tmp_path):
    config = load_config(["recipes=demo"])
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "ledger.json").write_text(json.dumps({"stopped": "budget", "steps": 725, "best_step": 720}))
    vocabulary = {"stage": "vocab", "key": "v"}
    (tmp_path / "manifest.json").write_text(json.dumps({"inputs": {"vocabulary": vocabulary}, "seconds": 1.0}))
    artifact = Artifact(stage="train", key="t", path=tmp_path, content="-")
    tier = config.baselines.tier(2094)
    system = bilingual(LangPair("ru", "en"), tier, config.runtime)
    models = [Trained(system=system, model=artifact, translations=artifact)]
    corpus, _ = source_of(Manifest(name="x", files=(FileEntry(split="test", format="tsv"),)))
    record = run_record(config, corpus, {}, {}, {"bilingual": models})
    (ledger,) = record["systems"]["bilingual"]
    assert (ledger["pair"], ledger["patience"], ledger["validate_every"]) == (
        "ru-en",
        tier.train.patience,
        tier.train.validate_every,
    )
    assert unfinished_systems(record["systems"], "ru-en") == {"bilingual"}
    assert record["baseline_boundaries"] == []  # the settings of the demo change smoothly
    for tiers, boundaries in (("[{up_to: 2500}, {up_to: 0}]", [2500]), ("[{up_to: 0}]", []), ("[]", [])):
        hard = load_config(["recipes=demo", "baselines.interpolate=false", f"baselines.tiers={tiers}"])
        assert run_record(hard, corpus, {}, {}, {})["baseline_boundaries"] == boundaries
    assert "ensemble" not in record
    together = replace(config, decode=replace(config.decode, ensemble=("b", "c")))
    members = [Artifact(stage="train", key=key, path=tmp_path, content="-") for key in ("k1", "k2")]
    record = run_record(together, corpus, {}, {}, {"moe": [replace(models[0], ensemble=members)], "bilingual": models})
    assert record["ensemble"] == {"b": "train/k1", "c": "train/k2"}
