"""What the experts of a trained model are chosen for: a stage that `train` and `prune` share, by one key."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pipeline.decode.config import DecodeConfig
from pipeline.decode.job import RoutingJob
from pipeline.jobs.hosts import launch_job
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.stage import Artifact, Stage, Store

SPLIT = "dev"
ROUTING = "routing.json"


def routing(store: Store, model: Artifact, *, decode: DecodeConfig, runtime: RuntimeConfig, label: str) -> Artifact:
    """routing.json of a trained MoE model: {"split": "dev", "layers": layer -> pair -> `tokens` and lists of one number
    an expert (`pipeline.decode.routing`)}, over the development sets of all pairs that it was trained on.

    decode: says which checkpoints the model is the mean of.
    """
    inputs = store.inputs(model)
    vocabulary = inputs["vocabulary"]
    encoded = {pair: artifact for pair, artifact in inputs.items() if pair != "vocabulary"}

    def run(out: Path) -> None:
        job = RoutingJob(
            title=f"routing {label}",
            pairs=list(encoded),
            encoded=[str(artifact.path) for artifact in encoded.values()],
            split=SPLIT,
            vocabulary=str(vocabulary.path),
            checkpoints=str(model.path / "checkpoints"),
            out=str(out),
            decode=replace(decode, precision="fp32"),
            runtime=runtime,
        )
        launch_job("pipeline.decode.routing", asdict(job), directory=out / "log", runtime=runtime, title=job.title)
        parts = [out / f"routing.rank-{rank}.json" for rank in range(runtime.processes)]
        layers = _sum([json.loads(part.read_text(encoding="utf-8")) for part in parts])
        (out / ROUTING).write_text(json.dumps({"split": SPLIT, "layers": layers}), encoding="utf-8")
        for part in parts:
            part.unlink()

    slice_ = {"split": SPLIT, "pairs": list(encoded), "average": [decode.average, decode.average_of]}
    stage = Stage(name="routing", version=2, config=slice_, inputs={**inputs, "model": model}, run=run, label=label)
    return store.get(stage)


def read_layers(artifact: Artifact) -> dict[str, dict[str, Any]]:
    """What was recorded: layer -> pair -> measure."""
    layers: dict[str, dict[str, Any]] = json.loads((artifact.path / ROUTING).read_text(encoding="utf-8"))["layers"]
    return layers


def _sum(parts: Sequence[Any]) -> Any:
    """Numbers of the same place in nested mappings and lists, added up; rounded, and so the same for any number of
    parts."""
    first = parts[0]
    if isinstance(first, dict):
        return {key: _sum([part[key] for part in parts]) for key in first}
    if isinstance(first, list):
        return [_sum(values) for values in zip(*parts, strict=True)]
    return round(sum(parts), 4)
