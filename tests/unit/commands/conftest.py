"""Finished runs that a new one takes from or translates with: the tiny one in tests/fixtures/run-0.2.0, and another."""

import hashlib
import json
import shutil
from dataclasses import fields

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from pipeline.checked_json import dump_checked, load_checked
from pipeline.config import ROOT, load_config
from pipeline.corpus.config import Rules
from pipeline.corpus.languages import LangPair
from pipeline.dag.artifact import publish
from pipeline.dag.store import Store
from pipeline.decode.config import DecodeConfig
from pipeline.finished_run import FinishedRun
from pipeline.vocab.tokenizer import Vocabulary

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


OTHER = "c" * 16
CPU = torch.device("cpu")
DECODE = DecodeConfig(beam=3, precision="fp64")
PAIR = LangPair("tr", "en")


@pytest.fixture
def other(place):
    """The run `other`, whose weights are those of `old` with noise. Returns the directory of both."""
    return add_run(place)


def add_run(place, change=lambda state: None, name="other", key=OTHER):
    """Add a run with the weights of `old` and noise. change: is called with the state of its checkpoint."""
    copy = shutil.copytree(place / "artifacts" / "train" / MODEL, place / "artifacts" / "train" / f"{key}.partial")
    (step,) = (copy / "checkpoints").glob("step-*")
    (shard,) = step.glob("*.safetensors")
    with safe_open(str(shard), framework="pt") as file:
        tensors, metadata = {key: file.get_tensor(key) for key in file.keys()}, file.metadata()  # noqa: SIM118
    torch.manual_seed(0)
    for tensor_name, tensor in tensors.items():
        if tensor_name.startswith("model.") and tensor.dim() > 1:
            tensor += 0.3 * tensor.std() * torch.randn_like(tensor)
    save_file(tensors, shard, metadata=metadata)
    state = load_checked((step / "state.json").read_text(encoding="utf-8"))
    state["shards"] = {shard.name: hashlib.sha256(shard.read_bytes()).hexdigest()}
    change(state)
    (step / "state.json").write_text(dump_checked(state), encoding="utf-8")
    manifest = json.loads((copy / "manifest.json").read_text(encoding="utf-8"))
    values = {k: manifest[k] for k in manifest.keys() - {"files", "content"}}
    publish(copy, place / "artifacts" / "train" / key, values)
    record = opened(place).record()
    record["name"], record["systems"]["moe"][0]["artifacts"]["model"] = name, f"train/{key}"
    write_record(place, name, record)
    return place


def write_record(place, name, record):
    (place / "runs" / name).mkdir(exist_ok=True)
    (place / "runs" / name / "run.json").write_text(json.dumps(record), encoding="utf-8")


def opened(place, name="old"):
    return FinishedRun.open(name, **places(place))


def places(place):
    return {"runs": place / "runs", "store": Store(place / "artifacts")}


def words(place, *more):
    place_words = (f"runtime.artifacts={place}/artifacts", f"runtime.runs={place}/runs")
    return [*place_words, "runtime.processes=1", "runtime.ep=1", *more]


def runs(place, *more):
    return words(place, "run=old", "pair=tr-en", *more)


def checkpoints(place):
    return [place / "artifacts" / "train" / key / "checkpoints" for key in (MODEL, OTHER)]


def vocabulary(place):
    return Vocabulary.load(place / "artifacts" / "vocab" / VOCABULARY)
