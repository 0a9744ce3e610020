"""A training on another type of device is another training, and a run that meets one says so."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config import load_config
from pipeline.corpus.languages import LangPair
from pipeline.dag import stages
from pipeline.dag.artifact import Artifact
from pipeline.dag.store import Store
from pipeline.dag.system import EarlierRun, Origin, multilingual
from pipeline.dag.training import train, train_and_translate, translate_before
from pipeline.decode.config import DecodeConfig
from pipeline.jobs import visible_devices

PAIR = LangPair("de", "en")
CLEANED = {PAIR: Artifact(stage="clean", key="c", path=Path(), content="c")}


class MadeUp(Store):
    """A store that makes nothing: the artifact of a stage is its name and key."""

    def get(self, stage):
        return Artifact(stage=stage.name, key=stage.key(), path=self.root / stage.name, content=stage.key())


@pytest.fixture
def store(tmp_path):
    return MadeUp(tmp_path)


@pytest.fixture
def system(tmp_path):
    """Return a function that makes the main model of the smoke recipe with overrides."""
    (tmp_path / "vocab.json").write_text(json.dumps({"source_size": 512, "target_size": 256, "shared": False}))
    vocabulary = Artifact(stage="vocab", key="v", path=tmp_path, content="v")

    def make(*overrides):
        return replace(
            multilingual(load_config(["recipes=smoke", *overrides]), [PAIR], Origin()), vocabulary=vocabulary
        )

    return make


def declared(system):
    encoded = Artifact(stage="encode", key="e", path=system.vocabulary.path, content="e")
    return stages.train(system, system.vocabulary, {PAIR: encoded})


def test_only_a_gpu_is_in_the_key(system, monkeypatch, tmp_path):
    cpu, auto, cuda = (declared(system(f"runtime.device={device}")) for device in ("cpu", "auto", "cuda"))
    assert cpu.key() == auto.key()
    assert "device" not in cpu.config
    same_precision = declared(system("runtime.device=cuda", "train.precision=fp32"))
    assert same_precision.config == {**cpu.config, "device": "cuda"}
    assert len({cpu.key(), same_precision.key(), cuda.key()}) == 3
    monkeypatch.setattr(visible_devices, "DRIVERS", [tmp_path])
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert declared(system("runtime.device=auto")).key() == cuda.key()


@pytest.mark.parametrize(
    ("earlier", "now", "remedy"),
    [
        (["runtime.device=cpu"], ["runtime.device=cuda"], "runtime.device=cpu and train.precision=fp32"),
        (["runtime.device=cuda"], ["runtime.device=cpu"], "runtime.device=cuda and train.precision=bf16"),
        (
            ["runtime.device=cpu", "train.precision=bf16"],
            ["runtime.device=cuda"],
            "runtime.device=cpu and train.precision=bf16",
        ),
    ],
)
@pytest.mark.parametrize(("suffix", "state"), [(".partial", "is half done, in"), ("", "is done, in")])
def test_a_training_that_another_type_of_device_began_is_not_continued_in_silence(
    store, system, caplog, earlier, now, remedy, suffix, state
):
    model = train(store, CLEANED, system(*earlier))[-1]
    directory = store.root / "train" / f"{model.key}{suffix}"
    directory.mkdir(parents=True)
    caplog.clear()
    anew = train(store, CLEANED, system(*now))[-1]
    assert anew.key != model.key
    (message,) = caplog.messages
    assert f"{remedy} it {state} {directory}" in message


def test_a_training_that_continues_needs_no_warning(store, system, caplog):
    for device in ("cpu", "cuda"):
        model = train(store, CLEANED, system(f"runtime.device={device}"))[-1]
        (store.root / "train" / f"{model.key}.partial").mkdir(parents=True)
    caplog.clear()
    train(store, CLEANED, system("runtime.device=cuda"))
    assert not caplog.messages


def earlier_run(vocabulary, model):
    return EarlierRun(run="base", pairs=[PAIR], vocabulary=vocabulary, model=model, decode=DecodeConfig())


def test_a_run_that_translates_with_others_is_not_compared_with_its_start(store, system, caplog):
    caplog.set_level("INFO")
    base = earlier_run(system().vocabulary, Artifact(stage="train", key="t", path=store.root, content="t"))
    alone, together = (load_config(["recipes=smoke", *words]) for words in ([], ["decode.ensemble=[second]"]))
    assert translate_before(alone, store, CLEANED, base).keys() == {PAIR}
    assert not caplog.messages
    assert translate_before(together, store, CLEANED, base) == {}
    assert caplog.messages == [
        "train.initialize_from=base is not compared with this run, which translates together with "
        "decode.ensemble=['second']"
    ]


def test_a_model_that_equal_settings_made_again_does_not_count_twice(store, system):
    config, model = load_config(["recipes=smoke", "decode.ensemble=[base]"]), train(store, CLEANED, system())[-1]
    with pytest.raises(
        ValueError, match=r"decode.ensemble=base: equal settings made .* would count twice; leave it out"
    ):
        train_and_translate(config, store, CLEANED, system(), [earlier_run(system().vocabulary, model)])
    second = earlier_run(system().vocabulary, replace(model, content="another"))
    trained = train_and_translate(config, store, CLEANED, system(), [second])
    assert (trained.model, trained.ensemble) == (model, [second.model])
