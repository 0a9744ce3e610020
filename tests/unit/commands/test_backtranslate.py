"""Translations of one text into several languages, laid out as a corpus."""

from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.commands.backtranslate import HEADING, lay_out_tables, load_backtranslation
from pipeline.commands.translated_corpus import check_ours
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

TEXT = [f"This is sentence {number}." for number in range(9)]
GERMAN = [f"Das ist Satz {number}." for number in range(9)]
NORWEGIAN = [f"Dette er setning {number}." for number in range(9)]


@pytest.fixture
def config(tmp_path):
    words = ["run=many", "pairs=[en-de,en-no]", f"text={tmp_path}/mono.en", "licence=CC-BY-4.0", f"out={tmp_path}/out"]
    return load_backtranslation(words)


@pytest.fixture
def tables(tmp_path):
    splits = {}
    for code, texts in (("de", GERMAN), ("no", NORWEGIAN)):
        directory = tmp_path / code
        directory.mkdir()
        batch = pa.RecordBatch.from_arrays([pa.array(texts), pa.array(TEXT)], names=[code, "en"])
        write_table(Table(columns=(code, "en"), batches=iter([batch])), directory / "table.parquet")
        splits[LangPair("en", code)] = Artifact(stage="backtranslate", key=code, path=directory, content=code)
    return splits


@pytest.fixture
def many():
    model = Artifact(stage="train", key="0123", path=Path("-"), content="-")
    return FinishedRun(
        name="my run",
        directory=Path("-"),
        commit="c0ffee",
        pairs=(LangPair("en", "de"), LangPair("en", "no")),
        model=model,
        vocabulary=model,
        decode=DecodeConfig(beam=4, length_penalty=1.0),
        max_source_tokens=96,
    )


def test_each_direction_is_a_table_that_a_corpus_can_have_beside_its_own(config, tables, many, tmp_path):
    out = tmp_path / "out"
    lay_out_tables(config, many, many.decode, tables, out)
    manifest = read_manifest(out)
    assert manifest.name == "backtranslated-my-run"
    by = "run my run (commit c0ffee, model train/0123, beam 4)"
    assert manifest.citation == f"mono.en; its translations into de, no are by {by}"
    main = tmp_path / "main"
    main.mkdir()
    for split in ("train", "dev", "test"):
        (main / f"{split}.tsv").write_text(f"de\tno\ten\nA {split}\tB {split}\tC {split}\n", encoding="utf-8")
    corpus_config = CorpusConfig(path=str(main), add=[str(out)], rules=Rules(language=None))
    store = Store(tmp_path / "store")
    corpus = prepare_corpus(corpus_config, ["de-en", "no-en"], store, DataConfig())
    for pair, texts in zip(corpus.pairs, (GERMAN, NORWEGIAN), strict=True):
        directory = clean(corpus_config, store, corpus, pair, DataConfig()).path
        assert bitext_rows(directory, "train")[1:] == list(zip(texts, TEXT, strict=True))
        assert [source["tag"] for source in funnel(directory)["sources"]] == ["", "bt"]


def test_what_it_made_is_replaced_and_nothing_else(config, tables, many, tmp_path):
    out = tmp_path / "out"
    lay_out_tables(config, many, many.decode, tables, out)
    german = {pair: table for pair, table in tables.items() if pair.tgt == "de"}
    check_ours(out, HEADING)
    lay_out_tables(config, many, many.decode, german, out)
    assert sorted(path.name for path in out.iterdir()) == ["manifest.yaml", "train.de-en.parquet"]
    (out / "mine.txt").write_text("keep me")
    with pytest.raises(ValueError, match=r"out=.*out holds mine.txt, which this command did not make"):
        check_ours(out, HEADING)
    (out / "mine.txt").unlink()
    (out / "manifest.yaml").write_text((out / "manifest.yaml").read_text().split("\n", 1)[1])
    with pytest.raises(ValueError, match=r"holds manifest\.yaml"):
        check_ours(out, HEADING)
