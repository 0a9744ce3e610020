"""The key of every stage of a run is pinned: as long as it does not change, artifacts of older versions are found."""

import hashlib
import json
from dataclasses import replace
from typing import ClassVar

import pytest

import pipeline.dag.baselines
import pipeline.dag.run
import pipeline.dag.stages
from pipeline.commands.translated_corpus import translated
from pipeline.config import load_config
from pipeline.corpus.languages import LangPair
from pipeline.dag.artifact import Artifact
from pipeline.dag.run import data_run, train_run
from pipeline.dag.stages import translate
from pipeline.dag.store import Store
from pipeline.decode.experts.pruning import Pruning
from pipeline.finished_run import FinishedRun

KEYS = """
backtranslate de-en: 59d8dba4328e43d4
clean de-en: 814229fa6396d560
clean tr-en: 4bd5c57fb121e072
data pinned: c306b62981ba7fea
distill de-en: a7cc826ca7c16a11
encode de-en: 233a0ca5aa7a332b
encode de-en: 3b5c20d76396e658
encode de-en: 88ca17bcdb853048
encode de-en: c7828dc4578b8a4f
encode tr-en: 958a58488c3050eb
encode tr-en: b27040154c411048
encode tr-en: d8ffcf452f0fad3a
encode tr-en: e7c1d16a9bfb403d
fetch corpus dev tr-en: cb432f56f8d60b0f
fetch corpus test tr-en: 60f99a3031e1f007
fetch corpus train de-en: 21139925925d9f65
fetch corpus train tr-en: c7c5c92b24327470
held_out: 18945e5e42da3036
held_out: add486ab84b69f9d
report pinned: 3b5050b1b2afd5e4
routing moe: e10583a4b9f3abf2
score pinned: 00fb77cde5476ac1
split corpus de-en: 9a5b36da493088e1
train bilingual de-en: bb8d397b7657b41c
train bilingual tr-en: 20c3d33b7ca009c9
train candidate deep de-en: a45587eaeee13dd5
train candidate deep tr-en: da43058a6478f28d
train candidate small de-en: 244f1f9f6168be90
train candidate small tr-en: 807c8c63d553218a
train moe: 4505f1d7cead9803
translate bilingual de-en: 7269daa6868850ee
translate bilingual tr-en: d66129be8ca94deb
translate moe: 82a74692b1f62dc7
translate pruned: aa2decc22d79a986
vocab bilingual de-en: d1000eab19f449e2
vocab bilingual tr-en: 4a8372c62ef7f3d7
vocab candidate deep de-en: d1000eab19f449e2
vocab candidate deep tr-en: 4a8372c62ef7f3d7
vocab candidate small de-en: d1000eab19f449e2
vocab candidate small tr-en: 4a8372c62ef7f3d7
vocab moe: 13cda4549f4335a3
"""
KEYS_OF_LEARNED = """
cross_entropy dual de-en 1: 4470d162d4253c5c
cross_entropy dual de-en 2: 0a27df9767c42526
cross_entropy dual en-de 1: 48d99712cc7b8c94
cross_entropy dual en-de 2: 74e7d8f66650be6b
encode dual de-en 1: 5851fe43e054d818
encode dual de-en 2: 54b672e20679ec97
encode dual en-de 1: aad8028c731d41da
encode dual en-de 2: 4a004a1f1df4b414
half dual de-en 1: 3717ccb15d5bae6b
half dual de-en 2: f7957ff117db05aa
half dual en-de 1: 5fff5fd8fddb97df
half dual en-de 2: 4245af8b37d7f5f8
scores de-en: 0ba4e0fb6df67a30
select de-en: 332a6c4040884235
select de-en: e1b7f3707385fb39
train dual de-en 1: 5d2be8e8bfb7b4cc
train dual de-en 2: 3082c8966d24a6b2
train dual en-de 1: 7c9c4235230dff2c
train dual en-de 2: 9da1293bb3e215fb
vocab dual de-en 1: 1f0538876ac18e2a
vocab dual de-en 2: f75f83e8d6d3e20e
vocab dual en-de 1: fa89d2a75f149832
vocab dual en-de 2: cf02e5de564ad3ef
"""
SPLITS = {"train": ["ein Haus\ta house", "zwei Wege\ttwo ways", "drei Seen\tthree lakes", "vier Tage\tfour days"]}
SPLITS |= {"dev": ["fünf Bäume\tfive trees"], "test": ["sechs Türen\tsix doors"]}


class RecordingStore(Store):
    """A store that notes the key of each stage. It runs only cheap stages; the others get small made-up files."""

    keys: ClassVar = set()  # "title: key"
    created: ClassVar = {}  # artifact and inputs by title

    def get(self, stage):
        title = f"{stage.name} {stage.label}".strip()
        key = stage.key()
        self.keys.add(f"{title}: {key}")
        path = self.root / stage.name / key
        if title not in self.created or self.created[title][0].path != path:
            (path / "log").mkdir(parents=True, exist_ok=True)
            fill(stage, path)
            (path / "manifest.json").write_text(json.dumps({"seconds": 1.0}))
            content = hashlib.sha256(title.encode()).hexdigest()
            self.created[title] = (Artifact(stage=stage.name, key=key, path=path, content=content), dict(stage.inputs))
        return self.created[title][0]

    def inputs(self, artifact):
        return next(inputs for created, inputs in self.created.values() if created == artifact)


def fill(stage, path):
    if stage.name in ("fetch", "split"):
        stage.run(path)
    splits = {"read": 4, "kept": 4}
    files = {
        "clean": ("funnel.json", {"train": {**splits, "kept": 4 if "de" in stage.label else 3}, "test": {"kept": 0}}),
        "vocab": ("vocab.json", {"source_size": 512, "target_size": 256, "shared": False}),
        "scores": ("scores.json", {"lines": 4, "rows": 4, "rows_with_a_score": 4}),
        "half": ("funnel.json", {"train": {"kept": 2}, "test": {"kept": 2}}),
        "train": ("log/ledger.json", {"validation_loss": 2.0 + len(stage.label) / 100}),
    }
    if stage.name in files:
        name, content = files[stage.name]
        (path / name).write_text(json.dumps(content))


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A corpus of two pairs in the home directory, one of them without dev and test, and a recording store."""
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for pair, splits in (("de-en", ("train",)), ("tr-en", ("train", "dev", "test"))):
        for split in splits:
            for side, code in enumerate(pair.split("-")):
                lines = [row.split("\t")[side] for row in SPLITS[split]] * 50
                (corpus / f"{split}.{pair}.{code}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(pipeline.dag.stages, "version", lambda package: "1")
    monkeypatch.setattr(pipeline.dag.stages, "unidata_version", "15.0.0")
    monkeypatch.setattr(pipeline.dag.run, "Store", RecordingStore)
    monkeypatch.setattr(pipeline.dag.baselines, "characters_per_token", lambda *_: 2.0)  # this store encodes nothing
    for name in ("publish_run", "lay_out"):
        monkeypatch.setattr(pipeline.dag.run, name, lambda artifact, directory, **options: directory)
    monkeypatch.setattr(RecordingStore, "keys", set())
    monkeypatch.setattr(RecordingStore, "created", {})
    return RecordingStore(tmp_path / "artifacts")


def test_keys_of_a_run_are_those_of_earlier_versions(store, tmp_path):
    config = load_config(
        [
            *("recipes=smoke", f"corpus={tmp_path / 'corpus'}", "name=pinned"),
            *(f"runtime.artifacts={store.root}", f"runtime.runs={tmp_path / 'runs'}"),
            "+baselines.search={pairs: 2, candidates: [{name: small}, {name: deep, model: {encoder_layers: 3}}]}",
        ]
    )
    config = replace(config, corpus=replace(config.corpus, path="~/corpus"))  # the path is part of the key of `score`
    data_run(config)
    train_run(config)
    run = finished_run(config, store)
    (pair,) = run.pairs
    common = {"vocabulary": run.vocabulary, "cleaned": {pair: store.created["clean de-en"][0]}, "model": run.model}
    pruning = Pruning(run="r", model="m", pairs=[], num_experts=4, experts={"encoder.1": [0, 2]}, how={}, statistics={})
    store.get(translate(decode=config.decode, runtime=config.runtime, label="pruned", pruning=pruning, **common))
    for stage in ("backtranslate", "distill"):
        options = {"what": "text", "stage": stage, "identity": {"text": "1"}, "inputs": {}, "runtime": config.runtime}
        translated(store, run, run.decode, pair, lambda: iter(()), **options)
    assert sorted(store.keys) == KEYS.strip().splitlines()


def test_keys_of_learned_cleaning_stay_too(store, tmp_path):
    """A change of them trains the small models of all users again."""
    (tmp_path / "s.tsv").write_text("0.5\n" * 200, encoding="utf-8")
    shares = "remove_of: {tr-en: 0}"
    for learned in (f"{{kind: dual, {shares}}}", f"{{kind: scores, files: {{de-en: {tmp_path}/s.tsv}}, {shares}}}"):
        words = [f"runtime.artifacts={store.root}", f"runtime.runs={tmp_path / 'runs'}", f"corpus.learned={learned}"]
        words += [f"corpus={tmp_path / 'corpus'}", "name=pinned", "runtime.device=cpu"]  # bfloat16 elsewhere
        data_run(load_config(["recipes=smoke", *words]))
    stages = ("half", "scores", "cross_entropy", "select")
    keys = [key for key in store.keys if key.startswith(stages) or " dual " in key]
    assert sorted(keys) == KEYS_OF_LEARNED.strip().splitlines()


def finished_run(config, store):
    return FinishedRun(
        name="pinned",
        commit="c",
        pairs=(LangPair("de", "en"),),
        model=store.created["train moe"][0],
        vocabulary=store.created["vocab moe"][0],
        decode=config.decode,
        max_source_tokens=192,
    )
