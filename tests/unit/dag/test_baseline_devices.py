"""Bilingual models that are made side by side have one device each, as the processes are launched."""

import json
from threading import Barrier

import pytest

from pipeline.config import load_config
from pipeline.corpus.languages import LangPair
from pipeline.dag import baselines, work
from pipeline.dag.artifact import Artifact
from pipeline.dag.store import Store
from pipeline.dag.system import bilingual
from pipeline.decode.job.jobs import TranslateJob
from pipeline.decode.job.shards import make_shards
from pipeline.decode.job.starter import run_job
from pipeline.jobs import launch

# In place of Python: it writes the visible devices beside the job file, which is the third argument, and ends.
RECORDER = '#!/bin/sh\nprintf %s "$CUDA_VISIBLE_DEVICES" > "$(dirname "$3")/$2.visible"\n'


@pytest.fixture
def vocabulary(tmp_path):
    path = tmp_path / "vocabulary"
    path.mkdir()
    (path / "vocab.json").write_text(json.dumps({"source_size": 512, "target_size": 512, "shared": False}))
    return Artifact(stage="vocab", key="k", path=path, content="c")


def test_training_and_translation_have_the_device_of_their_slot(tmp_path, monkeypatch, vocabulary):
    (tmp_path / "python").write_text(RECORDER)
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(launch.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,MIG-5")
    config = load_config(["recipes=smoke", "runtime.device=auto", "runtime.parallel_baselines=2"])
    pairs = [LangPair(code, "en") for code in ("de", "tr")]
    barrier = Barrier(2)

    def train_and_translate(system):
        out = tmp_path / system.pairs[0].name
        out.mkdir()
        barrier.wait(60)  # so that one does not take the slot of the other after it
        work.train(system, vocabulary, dict.fromkeys(system.pairs, vocabulary), out)
        shards = make_shards(out / "work", ["a"], target="en")
        job = TranslateJob(
            title="translate",
            slot=system.slot,
            rounds=[shards],
            max_source_tokens=9,
            long="whole",
            vocabulary="",
            checkpoints="",
            log=str(out / "log"),
            decode=config.decode,
            runtime=system.runtime,
        )
        with pytest.raises(AssertionError, match="has 0 records"):  # the recorder translates nothing
            run_job(job)
        return system.slot, {path.stem: path.read_text() for path in (out / "log").glob("*.visible")}

    systems = [bilingual(pair, config.baselines.tier(1000), config.runtime) for pair in pairs]
    results = baselines._side_by_side(
        config, Store(tmp_path), systems, train_and_translate, cost=lambda result: 1.0, what="models"
    )
    devices = dict(results.values())
    modules = ("pipeline.train", "pipeline.decode.job.process")
    assert devices == {0: dict.fromkeys(modules, "4"), 1: dict.fromkeys(modules, "MIG-5")}
