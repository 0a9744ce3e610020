"""Imports with new languages, exported, in transformers 4.57.1 and 5.23 (bench/setup.sh)."""

import csv
import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

from pipeline.config import ROOT
from pipeline.corpus.config import Rules
from pipeline.corpus.languages import LangPair
from pipeline.dag.reuse import check_change
from pipeline.dag.store import Store
from pipeline.decode.config import DecodeConfig
from pipeline.decode.model import load_model
from pipeline.decode.search.search import search
from pipeline.decode.text.line import Line
from pipeline.decode.text.translator import Translator
from pipeline.export.command import export_run
from pipeline.export.config import load_export
from pipeline.finished_run import FinishedRun
from pipeline.imports.command import import_checkpoint
from pipeline.imports.config import load_import
from pipeline.model.transformer import Transformer
from pipeline.train.upcycling import initialize_from
from pipeline.vocab.change import change_vocabulary
from pipeline.vocab.config import VocabConfig
from pipeline.vocab.rows import RowSources
from pipeline.vocab.tokenizer import Vocabulary
from tests.corpora import clean_pair
from tests.exports import V4, Runs
from tests.golden.test_export import logits_of
from tests.golden.test_import import SEARCH, compact
from tests.imports import ask, make_checkpoints, texts_of

NAMES = ["nllb", "moe", "shards"]  # a tokenizer with ids of tokens, one with tokenizer.json, and one with neither
EXTEND = {"cv": "tr", "la": None, "vo": "en"}  # two free rows of the embedding, and one more
TOKENS = {"cv": "chv_Cyrl", "la": "lat_Latn", "vo": "vol_Latn", "en": "eng_Latn"}
PAIRS = [LangPair("cv", "en"), LangPair("la", "vo"), LangPair("en", "cv")]
CONFIG = VocabConfig(shared=True, source_size=1, target_size=1, from_run="base", extend=EXTEND, extend_size=300)
# Text of new languages: Greek and Hindi, whose scripts the tokenizers lack, and Basque, whose letters they have.
STAND_INS = {"cv": "el", "la": "hi", "vo": "eu"}
SAMPLE = ROOT / "data" / "sample"


def rows_of(split):
    with (SAMPLE / f"{split}.tsv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.fixture(scope="module")
def texts(version):
    """Texts of the checkpoints' languages, and of the scripts whose pieces are added."""
    old = [text for of_code in texts_of("bcp47").values() for text in of_code]
    new = [[row[code] for row in rows_of("test") if 20 < len(row[code]) < 60][:4] for code in STAND_INS.values()]
    texts = [*old, *(text for of_language in new for text in of_language)]
    return texts if version == V4 else [text.rstrip(" ") for text in texts]  # 5 keeps a space at the end as a piece


@pytest.fixture(scope="module")
def bitexts(tmp_path_factory):
    """Text into English of the new languages that have some."""
    corpus, store = tmp_path_factory.mktemp("corpus"), tmp_path_factory.mktemp("text")
    for code, column in STAND_INS.items():
        for split in ("train", "dev", "test"):
            rows = [f"{row[column]}\t{row['en']}\n" for row in rows_of(split) if row[column]]
            (corpus / f"{split}.{code}-en.tsv").write_text("".join(rows), encoding="utf-8")
    rules = Rules(**{rule.name: None for rule in fields(Rules)})
    return {LangPair(code, "en"): clean_pair(corpus, f"{code}-en", store, rules=rules).path for code in STAND_INS}


@pytest.fixture(scope="module")
def runs(tmp_path_factory, bitexts):
    """Runs of imports that have three more languages, with rows of their own, and pieces of two of them."""
    root = tmp_path_factory.mktemp("extended")
    make_checkpoints(root)
    ask("tests.extended_worker", {"fast": [str(root / "moe")]})
    assert (root / "moe" / "tokenizer.json").is_file()
    settings = json.loads((root / "shards" / "tokenizer_config.json").read_text(encoding="utf-8"))
    del settings["added_tokens_decoder"]
    (root / "shards" / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    runs = Runs(root)
    for name in [*NAMES, "m2m"]:
        base = [f"source={root / name}", f"name={name}-base", "pairs=[tr-en]", *runs.overrides]
        import_checkpoint(load_import(base))
        extend(runs, f"{name}-base", name, bitexts)
    return runs


def extend(runs, base, name, bitexts):
    """Add a run whose vocabulary is that of a base with more languages, as a training makes it, and trained a bit."""
    run, out = open_run(runs, base), runs.root / f"vocabulary-{name}"
    config = replace(CONFIG, from_run=base)
    check_change(config, run.vocabulary)
    out.mkdir()
    change_vocabulary(config, run.vocabulary.path, bitexts, out)
    vocabulary, size = Vocabulary.load(out), Vocabulary.load(out).source_size
    model = Transformer(
        loaded(run).config, source_vocabulary=size, target_vocabulary=size, shared=True, max_positions=64
    )
    path = run.model.path / "checkpoints" / "step-00000000"
    initialize_from(path, model, vocabulary.sha256, row_sources=RowSources.load(out))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        new_VM = model.target_embedding_VM[min(vocabulary.tags[code] for code in EXTEND) :]
        new_VM.add_(torch.randn(new_VM.shape, generator=generator), alpha=0.1)
    runs.add(name, [model], out, PAIRS)


def open_run(runs, name):
    return FinishedRun.open(name, runs=runs.root / "runs", store=Store(runs.root / "artifacts"))


def loaded(run):
    vocabulary = Vocabulary.load(run.vocabulary.path)
    path, config = run.model.path / "checkpoints", DecodeConfig(**SEARCH)
    return load_model(path, vocabulary, longest=64, config=config, device=torch.device("cpu"))


@pytest.fixture(scope="module")
def exports(runs):
    """The directory of each export."""
    (runs.root / "exports").mkdir()
    directories = {name: runs.root / "exports" / name for name in NAMES}
    for name, directory in directories.items():
        export_run(load_export([f"run={name}", f"out={directory}", *runs.overrides]))
    return directories


@pytest.fixture(scope="module")
def answers(exports, texts, version):
    """The answers of tests.extended_worker about each export."""
    directions = [{"source": TOKENS[pair.src], "target": TOKENS[pair.tgt], "texts": texts} for pair in PAIRS]
    case = {name: {"directory": str(directory), "directions": directions} for name, directory in exports.items()}
    return ask("tests.extended_worker", {"exports": case}, environment=version)


@pytest.mark.parametrize("kind", ["fast", "slow"])
@pytest.mark.parametrize("name", NAMES)
def test_tokenizers_know_the_new_tags(runs, answers, texts, version, name, kind):
    vocabulary, answer = Vocabulary.load(open_run(runs, name).vocabulary.path), answers[name]["tokenizers"][kind]
    assert answer["class"] == ("NllbTokenizerFast" if kind == "fast" and version == V4 else "NllbTokenizer")
    assert answer["tags"] == {token: vocabulary.tags[code] for code, token in TOKENS.items()}
    assert {TOKENS[code] for code in EXTEND} <= {*answer["special"]}
    assert answer["length"] == answers[name]["rows"] == vocabulary.source_size > vocabulary.tags["vo"] + 200
    for pair, ids in zip(PAIRS, answer["ids"], strict=True):
        assert ids == vocabulary.encode_source(texts, pair.tgt, pair.src)
        new = [sum(index > vocabulary.tags["vo"] for index in row) for row in ids]
        assert max(new[:-12]) == 0 < min(max(new[-12:-8]), max(new[-8:-4]), max(new[-4:]))
    assert not any(token in text for text in answer["decoded"] for token in TOKENS.values())
    assert (answer["plain"] == answer["space at the end"]) == (version == V4)


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_the_same(runs, answers, texts, name):
    run = open_run(runs, name)
    model, vocabulary = loaded(run), Vocabulary.load(run.vocabulary.path)
    for pair, answer in zip(PAIRS, answers[name]["directions"], strict=True):
        rows = vocabulary.encode_source(texts, pair.tgt, pair.src)
        for source, translation, expected in zip(rows, answer["beam 1"], answer["logits"], strict=False):
            (logits,) = logits_of(model, [source], [[*translation, 2]])
            torch.testing.assert_close(logits, torch.tensor(expected), atol=1e-4, rtol=0)  # sums in another order


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("name", NAMES)
def test_generate_finds_the_same_translations(runs, answers, texts, name, beam):
    run = open_run(runs, name)
    model, vocabulary = loaded(run), Vocabulary.load(run.vocabulary.path)
    translator = Translator(model, vocabulary, DecodeConfig(**SEARCH, beam=beam), max_source_tokens=64)
    for pair, answer in zip(PAIRS, answers[name]["directions"], strict=True):
        plan = translator.plan([Line(text=text, source=pair.src, target=pair.tgt) for text in texts])
        parts = sorted((part for batch in plan.batches for part in batch), key=lambda part: part.line)
        best = [hypotheses[0] for hypotheses in search(model, [part.request for part in parts], translator.config)]
        assert [hypothesis.tokens for hypothesis in best] == answer[f"beam {beam}"]
        assert len({tuple(hypothesis.tokens) for hypothesis in best}) > len(best) / 3, "the test would see little"
        assert {hypothesis.tokens[0] for hypothesis in best} == {vocabulary.tags[pair.tgt]}
        if beam > 1:
            assert [hypothesis.score for hypothesis in best] == pytest.approx(answer["scores"], abs=1e-4)
            assert [compact(text) for text in translator.texts(best)] == [compact(text) for text in answer["texts"]]


def test_an_extended_m2m100_is_not_exported(runs):
    out = Path(runs.root, "exports-m2m")
    with pytest.raises(ValueError, match=r"vocab\.extend added cv, la, vo to an imported M2M100, .* a fixed list"):
        export_run(load_export(["run=m2m", f"out={out}", *runs.overrides]))
    assert not out.exists()
