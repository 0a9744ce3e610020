"""The checkpoints of a trained model that decoding loads. Free of torch, so that it loads fast."""

import json
from pathlib import Path

from pipeline.decode.config import DecodeConfig


def choose(checkpoints: Path, config: DecodeConfig) -> list[Path]:
    """Return the checkpoints to decode with. Raises ValueError if training kept fewer than are to be averaged."""
    marks = json.loads((checkpoints / "best.json").read_text(encoding="utf-8"))
    if config.average == 1:
        return [checkpoints / marks["best"]]
    names = marks.get(config.averaged_rule, [])  # older versions wrote no lists
    if len(names) < config.average:
        raise ValueError(
            f"decode.average={config.average}: of the {config.average_of} checkpoints {checkpoints} has {len(names)}; "
            f"lower it, or remove {checkpoints.parent} and train anew with "
            f"train.checkpoints.{config.averaged_rule}={config.average} and as many validations"
        )
    return [checkpoints / name for name in names[: config.average]]
