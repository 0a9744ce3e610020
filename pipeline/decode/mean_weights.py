"""The rule which models have a mean (`decode.combine=weights`). Free of torch, so that it loads fast."""

from dataclasses import asdict
from typing import Any

from pipeline.model.config import ModelConfig
from pipeline.model.moe.gates.config import ExpertChoiceConfig, GateConfig

# Settings that affect training alone, so that two models may differ in them.
_OF_TRAINING = frozenset(
    (
        *("dropout", "dispatch", "z_weight", "output_masking", "capacity_factor", "second", "count_dropped_second"),
        *("balance_weight", "importance_weight", "load_weight", "threshold_weight", "jitter"),
    )
)
# Settings that are compared in another form.
_PARTS = frozenset(("moe", "gate", "encoder_gate", "conditional", "bias_rate"))


def check_mean(model: ModelConfig, other: ModelConfig, run: str, other_run: str) -> None:
    """Raise ValueError if weights of two models mean different things, so that their mean means nothing.

    run, other_run: names of the runs, for the message.
    """
    settings, other_settings = _decisive(model), _decisive(other)
    for key in {**settings, **other_settings}:
        value, other_value = settings.get(key), other_settings.get(key)
        if value != other_value:
            raise ValueError(
                f"decode.combine=weights: {key} is {other_value} in {other_run}, and {value} in {run}; take runs that "
                "started from the same weights, or combine=linear"
            )


def _decisive(config: ModelConfig) -> dict[str, Any]:
    """Return the settings by which a trained model computes, by their dotted names."""
    settings = {**_fields(config, "model"), "model.head_dim": config.key_dim}
    moe = config.moe
    if moe.num_experts:
        settings |= _fields(moe, "model.moe")
        settings["model.moe.conditional"] = "on" if moe.conditional else "off"
        settings |= _gate_fields(moe.gate_of(decoder=True), "model.moe.gate")
        settings |= _gate_fields(moe.gate_of(decoder=False), "model.moe.encoder_gate")
    return settings


def _gate_fields(gate: GateConfig, path: str) -> dict[str, Any]:
    settings = _fields(gate, path)
    if isinstance(gate, ExpertChoiceConfig):
        settings[f"{path}.capacity_factor"] = gate.capacity_factor  # also in evaluation
    if getattr(gate, "bias_rate", 0.0):
        settings[f"{path}.bias_rate"] = "more than 0"  # then the gate has biases
    return settings


def _fields(config: Any, path: str) -> dict[str, Any]:
    return {f"{path}.{key}": v for key, v in asdict(config).items() if key not in _OF_TRAINING | _PARTS}
