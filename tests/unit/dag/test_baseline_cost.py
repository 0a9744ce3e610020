"""The time of bilingual models before they begin, in units of the main training, whose model and budget they have."""

from pathlib import Path
from typing import Any

import pytest

import pipeline.dag.baselines
import pipeline.dag.run
from pipeline.config import load_config
from pipeline.dag.baselines import most_cost
from pipeline.dag.run import baselines_run, train_run
from pipeline.model.flops import forward_flops
from tests.unit.dag.test_keys import RecordingStore, store  # noqa: F401


class FindingStore(RecordingStore):
    """A store that finds what was made before."""

    def published(self, stage):
        path = self.root / stage.name / stage.key()
        return next((artifact for artifact, _ in self.created.values() if artifact.path == path), None)


class Ears:
    """A listener that keeps the estimates."""

    def __init__(self) -> None:
        self.heard: list[dict[str, float]] = []
        self.directory = Path("run")

    def describe(self, **_: Any) -> None:
        pass

    def expect(self, **estimates: float) -> None:
        self.heard.append(estimates)

    def stage(self, *_: Any) -> None:
        pass

    def batch(self, *_: Any, **__: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("overrides", "cost"),
    [
        (["runtime.parallel_baselines=2"], 2.0),  # both at once, at half the speed of two processes
        (["runtime.parallel_baselines=1"], 4.0),
        (["runtime.parallel_baselines=9"], 2.0),
        (["+baselines.search={pairs: 2, candidates: [{name: a}, {name: b, train: {learning_rate: 0.1}}]}"], 4.0),
    ],
)
def test_models_that_are_not_trained_take_their_flops(store, tmp_path, monkeypatch, overrides, cost):  # noqa: F811
    monkeypatch.setattr(pipeline.dag.run, "Store", FindingStore)
    config = load_config(
        [
            *(
                "recipes=smoke",
                f"corpus={tmp_path / 'corpus'}",
                "model.moe.num_experts=0",
                "baselines.tiers=[{up_to: 0}]",
            ),
            *(f"runtime.artifacts={store.root}", f"runtime.runs={tmp_path / 'runs'}", *overrides),
        ]
    )
    ears = Ears()
    baselines_run(config, ears)
    train_run(config, ears)
    costs = [estimates["baselines"] for estimates in ears.heard]
    assert costs == [pytest.approx(cost), 0.0], "an earlier command has trained them"
    assert most_cost(config, num_pairs=2) == pytest.approx(cost), "there is one tier, so the rows decide nothing"


@pytest.mark.parametrize("patience", [0, 5])
def test_translations_take_their_forward_flops(store, tmp_path, monkeypatch, patience):  # noqa: F811
    """Training takes three times the forward FLOPs of its tokens; a beam of 4 decodes each target token 4 times."""
    monkeypatch.setattr(pipeline.dag.run, "Store", FindingStore)
    monkeypatch.setattr(pipeline.dag.baselines, "num_test_lines", lambda cleaned: dict.fromkeys(cleaned, 1000))
    config = load_config(
        [
            *("recipes=smoke", f"corpus={tmp_path / 'corpus'}", "model.moe.num_experts=0", "decode.beam=4"),
            *(f"baselines.tiers=[{{up_to: 0, train: {{patience: {patience}}}}}]", "train.max_tokens=1000000"),
            *(f"runtime.artifacts={store.root}", f"runtime.runs={tmp_path / 'runs'}", "train.max_steps=0"),
        ]
    )
    ears = Ears()
    train_run(config, ears)
    forward = forward_flops(config.model, config.vocab.target_size)
    lines = 1000 * 30 / 1e6 / 3 * (forward.source_token + 4 * forward.target_token)
    of_pair = lines / (forward.source_token + forward.target_token)
    (estimates,) = ears.heard
    assert estimates["translation"] == pytest.approx(2 * of_pair)
    assert estimates["baselines"] == pytest.approx(2 * (1 + of_pair))  # two at once, at half the speed
    assert estimates["capped"] == bool(patience)
