"""A finished run that a new one takes its vocabulary and weights from: the tiny one in tests/fixtures/run-0.2.0."""

import shutil
from dataclasses import fields

import pytest

from pipeline.config import ROOT, load_config
from pipeline.corpus.config import Rules

FIXTURE = ROOT / "tests" / "fixtures" / "run-0.2.0"
MODEL, VOCABULARY = "ed4152d0a1284049", "4e0abe7c8a7d4664"
STEP = f"train/{MODEL}/checkpoints/step-00000160"
REUSED = ("vocab.from_run=old", "train.initialize_from=old")
SIZES = (
    *("model.dim=12", "model.ffn_dim=24", "model.heads=2", "model.encoder_layers=1", "model.decoder_layers=2"),
    *("model.moe.num_experts=2", "model.moe.expert_dim=12", "runtime.processes=1", "runtime.ep=1"),
)


@pytest.fixture
def place(tmp_path):
    """The finished run `old`, in directories of its own."""
    shutil.copytree(FIXTURE / "finished", tmp_path / "artifacts")
    (tmp_path / "runs" / "old").mkdir(parents=True)
    shutil.copy(FIXTURE / "run.json", tmp_path / "runs" / "old")
    return tmp_path


@pytest.fixture
def config(place):
    def load(*words):
        directories = (f"runtime.artifacts={place}/artifacts", f"runtime.runs={place}/runs")
        return load_config(["recipes=smoke", "name=new", "pairs=[tr-en]", *SIZES, *directories, *words])

    return load


def corpus_of(directory, src, tgt, rows, manifest=""):
    directory.mkdir()
    for split in ("train", "dev", "test"):
        text = "".join(f"{a} {split}\t{b} {split}\n" for a, b in rows)
        (directory / f"{split}.{src}-{tgt}.tsv").write_text(text, encoding="utf-8")
    if manifest:
        (directory / "manifest.yaml").write_text(manifest, encoding="utf-8")
    return directory


NO_RULES = Rules(**{rule.name: None for rule in fields(Rules)})
ROWS = [(f"Geçerli seçim {number}", f"The selection {number}") for number in range(60)]
