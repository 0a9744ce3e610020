"""The time of bilingual models before they begin, in units of the main training, whose model and budget they have."""

from pathlib import Path
from typing import Any

import pytest

import pipeline.dag.run
from pipeline.config import load_config
from pipeline.dag.run import baselines_run, train_run
from tests.unit.dag.test_keys import RecordingStore, store  # noqa: F401


class FindingStore(RecordingStore):
    """A store that finds what was made before."""

    def published(self, stage):
        path = self.root / stage.name / stage.key()
        return next((artifact for artifact, _ in self.created.values() if artifact.path == path), None)


class Ears:
    """A listener that keeps the estimates."""

    def __init__(self) -> None:
        self.heard: list[float | None] = []
        self.directory = Path("run")

    def describe(self, **_: Any) -> None:
        pass

    def expect(self, *, training: float | None = None, baselines: float | None = None) -> None:
        self.heard.append(baselines)

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
    assert ears.heard == [pytest.approx(cost), 0.0], "an earlier command has trained them"
