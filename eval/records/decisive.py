"""The settings of a recorded configuration that decide results."""

from collections.abc import Mapping, Sequence
from typing import Any

from eval.records.run_record import Json

NOT_OF_TRAINING = ("log_every", "checkpoints")  # settings of training that do not change its result
SPEED_ONLY = ("batch_tokens", "beam_memory")  # of decoding, except in bf16, in int8 or with a capacity
_WITHOUT_EFFECT = {  # by the part of the configuration that they stand in, at any depth
    "train": NOT_OF_TRAINING,
    "corpus": ("keep_removed",),
    "gate": ("pairs",),  # a run sets them itself
    "encoder_gate": ("pairs",),
    "score": ("test_sets",),  # further ones
}
_LABELS = ("name", "recipe", "report")


def decisive(config: Json, *, without: Sequence[str] = ()) -> Json:
    """Return the part of a configuration that decides results. Tiers and candidates have parts of the same names.

    without: further settings to leave out, as dotted names of a part and a setting, such as `train.seed`, which also
        leaves out that of each tier.
    """
    return {key: value for key, value in _part(config, "", without).items() if key not in _LABELS}


def decisive_decoding(decode: Mapping[str, Any]) -> Json:
    """Return the settings of decoding that can change a translation by more than the last bits of a float32."""
    excluded = set(SPEED_ONLY)
    if decode.get("precision") in ("bf16", "int8"):
        excluded.clear()
    elif decode.get("capacity_factor"):
        excluded.remove("batch_tokens")
    return {key: value for key, value in decode.items() if key not in excluded}


def _part(config: Mapping[str, Any], place: str, without: Sequence[str]) -> Json:
    if place == "decode":
        config = decisive_decoding(config)
    kept: Json = {}
    for key, value in config.items():
        if key in _WITHOUT_EFFECT.get(place, ()) or f"{place}.{key}" in without:
            continue
        if isinstance(value, Mapping):
            kept[key] = _part(value, key, without)
        elif isinstance(value, list):
            kept[key] = [_part(item, key, without) if isinstance(item, Mapping) else item for item in value]
        else:
            kept[key] = value
    return kept
