"""`make export`: which checkpoint, where to, and what is refused."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pipeline.corpus.languages import LangPair
from pipeline.export.command import export_run
from pipeline.export.config import load_export
from pipeline.export.weights import named_weights
from pipeline.model.config import MoEConfig
from pipeline.vocab.config import VocabConfig
from pipeline.vocab.tokenizer import Vocabulary, train_vocabulary
from tests.exports import Runs, config_of, random_model

PAIRS = [LangPair("ja", "en"), LangPair("tr", "en")]


@pytest.fixture(scope="module")
def runs(prepared, tmp_path_factory):
    runs = Runs(tmp_path_factory.mktemp("runs"))
    directory = runs.root / "vocabulary"
    directory.mkdir()
    bitexts = dict(zip(PAIRS, map(Path, prepared.bitexts), strict=True))
    train_vocabulary(VocabConfig(shared=True, source_size=2000, target_size=2000), bitexts, directory)
    vocabulary = Vocabulary.load(directory)
    runs.models = [random_model(config_of(), vocabulary, seed) for seed in (1, 2, 3)]
    runs.add("dense", runs.models, directory, PAIRS)
    moe = MoEConfig(num_experts=4, expert_dim=16)
    runs.add("moe", [random_model(config_of(moe=moe), vocabulary)], directory, PAIRS)
    return runs


@pytest.fixture
def export(runs, tmp_path):
    def export(run, *words, out="out"):
        return export_run(load_export([f"run={run}", f"out={tmp_path}/{out}", *words, *runs.overrides]))

    return export


def test_the_best_checkpoint_or_the_mean_of_several_is_exported(runs, export):
    first, *copies = map(named_weights, runs.models)
    best = load_file(export("dense") / "model.safetensors")
    mean = load_file(export("dense", "decode.average=3", out="mean") / "model.safetensors")
    assert best.keys() == mean.keys() == first.keys()
    for name, tensor in first.items():
        torch.testing.assert_close(best[name], tensor, atol=0, rtol=0)
        expected = torch.stack([tensor, *(other[name] for other in copies)]).mean(dim=0)
        torch.testing.assert_close(mean[name], expected, atol=1e-6, rtol=1e-6)


def test_an_export_is_in_float32_whatever_a_run_decodes_in(runs, export, caplog):
    """And says which settings of decoding it does not have."""
    plain = load_file(export("dense") / "model.safetensors")
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    for precision in ("bf16", "fp64"):
        of_run = {"precision": precision, "coverage_penalty": 0.2}
        runs.add(precision, runs.models, runs.root / "vocabulary", PAIRS, **of_run)
        weights = load_file(export(precision, out=precision) / "model.safetensors")
        assert {tensor.dtype for tensor in weights.values()} == {torch.float32}
        assert all(torch.equal(weights[name], plain[name]) for name in plain)
    assert "decode.coverage_penalty=0.2 is not in the export, which translates as with 0.0" in caplog.text


def test_an_export_is_complete_or_not_there(export, tmp_path):
    names = {path.name for path in export("moe").iterdir()}
    dense = {path.name for path in export("dense", out="dense").iterdir()}
    assert names - dense == {"modeling_babelshard.py"}
    assert dense == {
        *("README.md", "config.json", "generation_config.json", "model.safetensors"),
        *("tokenizer.json", "tokenizer_config.json", "tokenization_babelshard.py"),
    }
    with pytest.raises(ValueError, match=r"decode\.average=9"):
        export("dense", "decode.average=9", out="failed")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dense", "out"]


@pytest.mark.parametrize(
    ("run", "words", "message"),
    [
        ("dens", [], "there is no finished run; did you mean dense?"),
        ("", [], "NAME is empty"),
        ("dense", ["target=de"], "target=de: run dense translates into en; choose one of them"),
        ("dense", ["format=onnx"], "format='onnx' is not one of huggingface, ctranslate2"),
        ("dense", ["format=ctranslate2"], "needs the package ctranslate2"),
        ("dense", ["decode.bean=4"], "decode.bean"),
    ],
)
def test_what_cannot_be_done_is_said(export, run, words, message):
    with pytest.raises(ValueError, match=message):
        export(run, *words)


def test_what_is_there_is_left_alone(export, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="is not an empty directory; remove it or choose another"):
        export("dense")
    assert (tmp_path / "out" / "mine.txt").read_text() == "mine"
