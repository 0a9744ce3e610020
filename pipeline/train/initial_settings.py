"""Settings that decide what a model computes and have no weight, so that shapes alone do not show a difference."""

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pipeline.model.components import is_trainable
from pipeline.model.config import ModelConfig
from pipeline.model.moe.gates.config import GateConfig
from pipeline.model.moe.gates.task_config import TaskConfig


def check_scale(path: str, config: ModelConfig, trained: ModelConfig, sources: Mapping[str, str]) -> None:
    """Raise ValueError if the outputs of experts would count otherwise than in the model that the weights come from.

    path: what `train.initialize_from` is.
    trained: the configuration of the model that the weights come from.
    sources: name of the checkpoint's weight that each weight becomes a copy of.
    """
    moe = config.moe
    for name, source in sources.items():
        if not name.endswith(".experts.wi_EMH"):
            continue
        if name == source and moe.output_scale != trained.moe.output_scale:
            raise ValueError(
                f"train.initialize_from={path}: its experts count with model.moe.output_scale="
                f"{trained.moe.output_scale}, and with {moe.output_scale} here; set the same"
            )
        gate = moe.gate_of(decoder=name.startswith("decoder."))
        copies = gate.k if isinstance(gate, TaskConfig) else 1  # the weights of other gates sum to 1 at most
        if name != source and not math.isclose(moe.output_scale * copies, 1, rel_tol=1e-5):
            counted = f"the outputs of k={copies} experts are added" if copies > 1 else "an output counts in part"
            raise ValueError(
                f"train.initialize_from={path}: experts become copies of its feed-forward networks, and {counted}; set "
                f"model.moe.output_scale={1 / copies:g}"
            )


def gate_differences(
    config: ModelConfig, trained: ModelConfig, sources: Mapping[str, str], trainable: str | Collection[str]
) -> Iterator[tuple[str, bool]]:
    """Yield a description for each side whose routers are copied into gates of other settings, and whether they train.

    config, trained, sources: as in `check_scale`.
    trainable: the parameters that train, for `is_trainable`.
    """
    for side in ("encoder", "decoder"):
        routers = [name for name in sources if name.startswith(f"{side}.") and ".feed_forward.router." in name]
        here, there = (model.moe.gate_of(decoder=side == "decoder") for model in (config, trained))
        old, new = _function(there), _function(here)
        if routers and old != new:
            names = ["kind", *(name for name in {**old, **new} if name != "kind" and old.get(name) != new.get(name))]
            old_gate, new_gate = (
                " ".join(f"{name}={settings[name]}" for name in names if name in settings) for settings in (old, new)
            )
            difference = f"the {side}'s routers were trained for a gate of {old_gate}, and it is {new_gate} here"
            yield difference, is_trainable(routers[0], trainable)


def _function(gate: GateConfig) -> dict[str, Any]:
    """Return the settings that a router's weights are trained for: how experts are scored, and how many are chosen.

    A score by softmax and nodes that limit no choice are left out. A bias counts by its presence alone.
    """
    settings = {"kind": gate.kind, "score": getattr(gate, "score", "softmax"), "k": getattr(gate, "k", None)}
    nodes = {name: getattr(gate, name, 1) for name in ("expert_nodes", "max_nodes")}
    if nodes["max_nodes"] < nodes["expert_nodes"]:
        settings |= nodes
    settings["bias"] = bool(getattr(gate, "bias_rate", 0))
    return {name: value for name, value in settings.items() if value not in ("softmax", None, False)}
