"""The settings that decide whether a model is trained anew."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config import load_config
from pipeline.dag.artifact import Artifact
from pipeline.dag.stages import train
from pipeline.dag.system import System
from pipeline.train.config import CheckpointConfig


def key(*overrides, **changes):
    config = load_config(["recipes=smoke", *overrides])
    settings = {part: getattr(config, part) for part in ("vocab", "batch", "model", "runtime", "layout")}
    system = System(label="one", pairs=[], train=replace(config.train, **changes), **settings)
    vocabulary = Artifact(stage="vocab", key="k", path=Path("-"), content="c")
    return train(system, vocabulary, {}).key()


def checkpoint(directory, sha256):
    directory.mkdir(parents=True)
    (directory / "state.json").write_text(json.dumps({"shards": {"shard-00001.safetensors": sha256}}))
    return str(directory)


def test_which_checkpoints_are_kept_is_in_no_key():
    keep = CheckpointConfig(best_k=3, last_n=5, every_n=100, save_every=7)
    assert key(checkpoints=keep, log_every=3) == key()
    assert key(ema=0.99) != key()


def test_where_a_run_executes_is_in_no_key():
    assert key("layout=model", "runtime.ep=1", "runtime.mp=2", "runtime.compile=true") == key()
    assert key("model.heads=8") != key()


def test_an_option_of_the_model_is_in_the_key_unless_it_is_as_in_models_without_it():
    assert key("model.activation=relu", "model.norm=layer") == key()
    assert len({key(), key("model.activation=swiglu"), key("model.norm=rms")}) == 3


def test_what_a_model_starts_from_is_in_the_key_by_content_not_by_place(tmp_path):
    here, there = checkpoint(tmp_path / "a", "1"), checkpoint(tmp_path / "b", "1")
    other = checkpoint(tmp_path / "c", "2")
    assert key(initialize_from=here) == key(initialize_from=there) != key(initialize_from=other)
    assert key(initialize_from=here) != key()
    run = tmp_path / "run" / "checkpoints"
    checkpoint(run / "step-00000002", "1")
    (run / "best.json").write_text(json.dumps({"best": "step-00000002"}))
    assert key(initialize_from=str(run.parent)) == key(initialize_from=str(run)) == key(initialize_from=here)
    with pytest.raises(ValueError, match="is neither a checkpoint"):
        key(initialize_from=str(tmp_path))
