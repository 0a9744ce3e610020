"""docs/fine-tuning.md: its commands do what it says, on a few rows of the sample."""

import json
import re
import shlex

import pytest
import torch
from safetensors.torch import load_file

from pipeline.config import ROOT, load_config
from tests.system.place import run

TEXT = (ROOT / "docs" / "fine-tuning.md").read_text(encoding="utf-8")
BLOCK, EXTENSION, UPCYCLED, LIGHT, ADAPTED, EXPORTED = re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL)
TINY = [
    *("vocab.source_size=600", "vocab.target_size=600"),
    *("model.dim=16", "model.ffn_dim=32", "model.heads=2", "model.moe.num_experts=2", "model.moe.expert_dim=16"),
    *("train.max_steps=2", "baselines.tiers=[]", "decode.beam=1", "decode.max_length_ratio=0.1", "score.resamples=100"),
]
ROWS = {"train": 300, "dev": 10, "test": 4}


@pytest.fixture
def corpus(tmp_path):
    """The first rows of the sample in which all five languages have a text."""
    directory = tmp_path / "corpus"
    directory.mkdir()
    for split, number in ROWS.items():
        lines = (ROOT / "data" / "sample" / f"{split}.tsv").read_text(encoding="utf-8").splitlines()
        columns = lines[0].split("\t")
        rows = [dict(zip(columns, line.split("\t"), strict=True)) for line in lines[1:]]
        rows = [row for row in rows if all(row[code] for code in ("de", "fr", "ru", "tr", "en"))][:number]
        for code in ("de", "fr", "ru", "tr"):
            text = "".join(f"{row[code]}\t{row['en']}\n" for row in rows)
            (directory / f"{split}.{code}-en.tsv").write_text(text, encoding="utf-8")
    return directory


@pytest.fixture
def make(tmp_path, corpus):
    def make(command, *settings):
        directories = (f"runtime.artifacts={tmp_path}/artifacts", f"runtime.runs={tmp_path}/runs")
        words = shlex.split(command)
        arguments = next((word for word in words if word.startswith("ARGS=")), "ARGS=")
        words = [word for word in words if word != arguments]
        arguments = " ".join([arguments, *map(shlex.quote, [*settings, *directories])])
        corpora = [f"CORPUS={corpus}"] if words[:2] == ["make", "train"] else []
        process = run([*words, *corpora, arguments], timeout=600)
        assert process.returncode == 0, process.stderr
        return [line.removesuffix(": running") for line in process.stderr.splitlines() if line.endswith(": running")]

    return make


def artifacts(tmp_path, name):
    record = json.loads((tmp_path / "runs" / name / "run.json").read_text(encoding="utf-8"))
    return record["systems"]["moe"][0]["artifacts"]


def test_the_second_command_continues_the_first_and_follows_its_changes(make, tmp_path):
    first, second = BLOCK.strip().splitlines()
    own = TINY[2:]  # the vocabulary's sizes are those of the first run
    assert "vocab moe" in make(first, *TINY)
    ran = make(second, *own)
    assert "train moe" in ran
    assert not {title for title in ran if title.startswith("vocab")}
    general, special = artifacts(tmp_path, "general"), artifacts(tmp_path, "special")
    assert special["vocabulary"] == general["vocabulary"]
    assert special["initialized_from"] == general["model"]
    assert "initialized_from" not in general
    assert make(second, *own) == []
    make(f"{first} REPLACE=1", *TINY, "train.seed=2")
    assert "train moe" in make(second, *own)
    assert artifacts(tmp_path, "special")["initialized_from"] == artifacts(tmp_path, "general")["model"]
    assert artifacts(tmp_path, "general")["model"] != general["model"]


def weights_of(tmp_path, name):
    """Return the tensors of the best checkpoint, and how the model translates with it."""
    directory = tmp_path / "artifacts" / artifacts(tmp_path, name)["model"]
    shards = sorted(directory.glob("checkpoints/step-*/*.safetensors"))
    assert len({shard.parent for shard in shards}) == 1
    return {key: tensor for shard in shards for key, tensor in load_file(shard).items()}


def test_a_part_of_the_model_or_adapters_train_and_the_rest_is_that_of_the_first_run(make, tmp_path):
    own = TINY[2:]
    make(BLOCK.strip().splitlines()[0], *TINY)
    make(LIGHT.strip(), *own)
    make(ADAPTED.strip(), *own)
    general, light, adapted = (weights_of(tmp_path, name) for name in ("general", "light", "adapted"))
    weights = {key for key in general if key.startswith("model.")}
    changed = {key for key in weights if not torch.equal(light[key], general[key])}
    assert changed == {key for key in weights if "embedding" in key or "norm." in key}
    assert {key for key in light if key.startswith("exp_avg.")} == {
        key.replace("model.", "exp_avg.", 1) for key in changed
    }
    assert all(torch.equal(adapted[key], general[key]) for key in weights)
    new = {key for key in adapted if key.startswith("model.")} - weights
    assert new
    assert all(".adapters." in key for key in new)
    assert {key for key in adapted if key.startswith("exp_avg.")} == {
        key.replace("model.", "exp_avg.", 1) for key in new
    }
    assert make(LIGHT.strip(), *own) == make(ADAPTED.strip(), *own) == []


def test_a_dense_model_becomes_a_mixture_of_experts(make, tmp_path):
    """At a rate that moves nothing, its weights are those of the dense model, whose network is in every expert."""
    first, second = UPCYCLED.strip().splitlines()
    assert "model.ffn_dim" not in first  # the width is that of the recipe, which the page names
    assert load_config(["recipes=smoke"]).model.ffn_dim == 512
    small = [word for word in TINY[2:] if "moe" not in word]
    make(first, *TINY[:2], *small)
    make(second.replace("expert_dim=512", "expert_dim=32").replace("rate=1e-3", "rate=1e-9"), *small)
    dense, upcycled = (weights_of(tmp_path, name) for name in ("dense", "upcycled"))
    common = [key for key in dense if key.startswith("model.") and key in upcycled]
    assert len(common) > len([key for key in dense if key.startswith("model.") and key not in upcycled])
    torch.testing.assert_close({key: upcycled[key] for key in common}, {key: dense[key] for key in common})
    networks = [tensor for key, tensor in dense.items() if key.startswith("model.") and key not in upcycled]
    experts = [tensor for key, tensor in upcycled.items() if key.startswith("model.") and ".experts." in key]
    assert len(experts) == len(networks) > 0
    for tensor in experts:
        assert len(tensor) == 2  # of 4, because each of two processes saves its own
        for expert in tensor:
            assert any(torch.allclose(expert.flatten(), network.flatten(), atol=1e-6) for network in networks)


def test_adapters_are_exported_for_peft(make, tmp_path):
    shared, adapters, export = EXPORTED.strip().splitlines()
    make(shared, *TINY)
    make(adapters, *TINY[2:])
    make(export.replace("OUT=exports", f"OUT={tmp_path}"))
    assert {"adapter_config.json", "adapter_model.safetensors"} <= {
        path.name for path in (tmp_path / "adapters").iterdir()
    }


def test_a_language_is_added_and_what_is_forgotten_is_scored(make, tmp_path):
    first, second = EXTENSION.strip().splitlines()
    make(first, *TINY)
    ran = make(second, *TINY[2:])
    assert {"vocab moe", "train moe"} <= set(ran)
    assert not [title for title in ran if title.endswith("before")]  # the first run has these translations
    known_run, extended = artifacts(tmp_path, "known"), artifacts(tmp_path, "extended")
    assert extended["initialized_from"] == known_run["model"]
    assert extended["vocabulary"] != known_run["vocabulary"]
    directory = tmp_path / "runs" / "extended"
    record = json.loads((directory / "run.json").read_text(encoding="utf-8"))
    sizes = record["systems"]["moe"][0]["vocabulary_changes"]
    assert sizes["source"]["before"] == 600 < sizes["source"]["after"] - 100
    assert sizes["target"]["before"] == sizes["target"]["after"]
    rows = (directory / "forgetting.csv").read_text(encoding="utf-8").splitlines()[1:]
    assert {row.split(",")[0] for row in rows} == {"de-en", "fr-en"}
    assert "BLEU before | since" in (directory / "summary.md").read_text(encoding="utf-8")
    log = tmp_path / "artifacts" / extended["model"] / "log"
    (phase,) = json.loads((log / "mixture.json").read_text(encoding="utf-8"))
    shares = {entry["pair"]: entry["share"] for entry in phase["sources"]}
    assert shares["fr-en"] + shares["de-en"] == pytest.approx(0.3)
    assert make(second, *TINY[2:]) == []
