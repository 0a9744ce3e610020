"""A trained model, whole, for decoding."""

import json
from pathlib import Path

import torch

from pipeline.decode.config import DecodeConfig
from pipeline.decode.pruned import cut
from pipeline.decode.pruning import Pruning
from pipeline.decode.search import max_length
from pipeline.model.config import ModelConfig
from pipeline.model.transformer import Transformer
from pipeline.parallel.checkpoint import load_weights, read_state
from pipeline.schema import build
from pipeline.vocab.tokenizer import Vocabulary


def load_model(
    checkpoints: Path,
    vocabulary: Vocabulary,
    *,
    longest: int,
    config: DecodeConfig,
    device: torch.device,
    experts: str = "",
) -> Transformer:
    """The model of the best checkpoint, or of the mean of several, in float32. longest: tokens of the longest source.
    experts: path of a pruning, by which it is cut; empty keeps all of them.

    Raises ValueError on a damaged checkpoint, and where training kept fewer than are to be averaged.
    """
    chosen = choose(checkpoints, config)
    model = Transformer(
        build(ModelConfig, read_state(chosen[0])["model"]),
        source_vocabulary=vocabulary.source_size,
        target_vocabulary=vocabulary.target_size,
        shared=vocabulary.shared,
        max_positions=max(longest, max_length(longest, config)),
    )
    load_weights(chosen, model)
    if experts:
        cut(model, Pruning.read(Path(experts)).experts)
    return model.to(device).eval()


def choose(checkpoints: Path, config: DecodeConfig) -> list[Path]:
    """The checkpoints to decode with."""
    marks = json.loads((checkpoints / "best.json").read_text(encoding="utf-8"))
    if config.average == 1:
        return [checkpoints / marks["best"]]
    kept = marks.get(config.averaged_rule, [])  # an older version kept no lists
    if len(kept) < config.average:
        raise ValueError(
            f"decode.average={config.average}: of the {config.average_of} checkpoints {checkpoints} has {len(kept)}; "
            f"lower it, or remove {checkpoints.parent} and train anew with "
            f"train.checkpoints.{config.averaged_rule}={config.average} and as many validations"
        )
    return [checkpoints / name for name in kept[: config.average]]
