"""A student's corpus: the source side of a teacher's training pairs, what it wrote for them, and its own dev and test
sets."""

import json
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from pipeline.commands.distill import HEADING, _fill, _text, load_distillation
from pipeline.commands.translated_corpus import check_ours, lay_out
from pipeline.corpus.config import CorpusConfig, Rules
from pipeline.corpus.funnel import funnel
from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import read_manifest
from pipeline.corpus.tables import Table, write_table
from pipeline.dag.artifact import Artifact
from pipeline.dag.cleaning import clean, prepare_corpus
from pipeline.dag.store import Store
from pipeline.decode.config import DecodeConfig
from pipeline.finished_run import FinishedRun
from pipeline.tasks import DataConfig
from tests.corpora import bitext_rows

PAIR = LangPair("de", "en")
RULES = Rules(language=None)
GERMAN = [f"Das ist der Satz {number}." for number in range(9)]
ENGLISH = [f"This is sentence {number}." for number in range(9)]
LEAKED = "Fifty held out words of the test set"


def corpus(directory, rows, licence, **entry):
    directory.mkdir()
    files = []
    for split, lines in rows.items():
        (directory / f"{split}.tsv").write_text("de\ten\n" + "".join(f"{a}\t{b}\n" for a, b in lines), encoding="utf-8")
        files.append({"split": split, "path": f"{split}.tsv", "format": "multiway_tsv", **entry})
    manifest = {"name": directory.name, "licence": licence, "citation": directory.name, "files": files}
    (directory / "manifest.yaml").write_text(yaml.safe_dump(manifest), encoding="utf-8")
    return str(directory)


def cleaned_of(config, root):
    store = Store(root)
    prepared = prepare_corpus(config, ["de-en"], store, DataConfig())
    return clean(config, store, prepared, PAIR, DataConfig())


@pytest.fixture
def cleaned(tmp_path):
    """Rows that people wrote, after some that a machine did."""
    main = corpus(
        tmp_path / "main",
        {"train": zip(GERMAN, ENGLISH, strict=True), "dev": [("Eins", "One")], "test": [("Zwei", LEAKED)]},
        "MPL-2.0",
    )
    synthetic = corpus(tmp_path / "made", {"train": [("Maschine", "Words of a real person")]}, "CC0-1.0", tag="bt")
    return cleaned_of(CorpusConfig(path=main, add=[synthetic], rules=RULES), tmp_path / "teacher")


@pytest.fixture
def run(tmp_path):
    about = {"name": "main", "title": "A corpus", "licence": "MPL-2.0", "citation": "Somebody"}
    (tmp_path / "run.json").write_text(json.dumps({"corpus": about}), encoding="utf-8")
    model = Artifact(stage="train", key="0123", path=Path("-"), content="-")
    return FinishedRun(
        name="teacher",
        directory=tmp_path,
        commit="c0ffee",
        pairs=(PAIR,),
        model=model,
        vocabulary=model,
        decode=DecodeConfig(beam=4, length_penalty=1.0),
        max_source_tokens=96,
    )


def config_of(*words):
    return load_distillation(["run=teacher", "pairs=[de-en]", "out=out", *words])


def table_of(directory, targets):
    directory.mkdir()
    batch = pa.RecordBatch.from_arrays([pa.array(targets), pa.array(GERMAN)], names=["en", "de"])
    write_table(Table(columns=("en", "de"), batches=iter([batch])), directory / "table.parquet")
    return Artifact(stage="distill", key="-", path=directory, content="-")


def test_the_text_is_what_people_wrote_on_the_source_side(cleaned):
    assert [source["tag"] for source in funnel(cleaned.path)["sources"]] == ["", "bt"]
    assert list(_text(config_of(), PAIR, cleaned).lines()) == GERMAN


@pytest.mark.parametrize("real", [False, True])
def test_a_student_learns_the_teachers_text_and_is_measured_by_the_teachers_test_set(cleaned, run, tmp_path, real):
    written = [f"That be sentence {number}." for number in range(8)] + [LEAKED]
    tables = {PAIR: table_of(tmp_path / "table", written)}
    out, config = tmp_path / "out", config_of(f"real={real}")
    lay_out(out, HEADING, partial(_fill, config, run, run.decode, tables, {PAIR: cleaned}))
    manifest = read_manifest(out)
    assert (manifest.name, manifest.licence) == ("distilled-teacher", "MPL-2.0")
    assert manifest.citation == "Somebody; the targets of its training rows are by run teacher (commit c0ffee, " + (
        "model train/0123, beam 4)"
    )
    assert {entry.licence for entry in manifest.files if entry.split == "train"} == {"MPL-2.0"}
    student = cleaned_of(CorpusConfig(path=str(out), rules=RULES), tmp_path / "student").path
    for split in ("dev", "test"):
        assert bitext_rows(student, split) == bitext_rows(cleaned.path, split)
    distilled = list(zip(GERMAN[:8], written, strict=False))  # without the row that has a text of the test set
    people = list(zip(GERMAN, ENGLISH, strict=True))
    assert bitext_rows(student, "train") == distilled + (people if real else [])
    check_ours(out, HEADING)
    (out / "mine.txt").write_text("keep me")
    with pytest.raises(ValueError, match=r"out holds mine.txt, which this command did not make"):
        check_ours(out, HEADING)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["text=mono.de"], "LICENCE is empty; give that of the text"),
        (["licence=CC0-1.0"], "LICENCE and CITATION are those of a text: give it"),
        (["pairs=[]"], "LANG_PAIRS is empty; give the directions"),
        (["out="], "OUT is empty; give the directory"),
        (["name='my own'"], "a source is named by letters"),
        (["reel=true"], "reel"),
    ],
)
def test_mistakes_are_named(words, message):
    with pytest.raises(ValueError, match=message):
        config_of(*words)
