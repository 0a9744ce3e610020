"""A trained model for decoding, whole or with its experts cut over processes."""

import json
from pathlib import Path

import torch

from pipeline.decode.config import DecodeConfig
from pipeline.decode.search import max_length
from pipeline.model.config import ModelConfig
from pipeline.model.transformer import Transformer, sinusoids
from pipeline.parallel.checkpoint import load_weights, read_state
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.partition import cut_experts
from pipeline.schema import build
from pipeline.vocab.tokenizer import Vocabulary


def load_model(
    checkpoints: Path,
    vocabulary: Vocabulary,
    *,
    longest: int,
    config: DecodeConfig,
    device: torch.device,
    mesh: Mesh | None = None,
) -> Transformer:
    """The model of the best checkpoint, or of the mean of several, in float32. longest: tokens of the longest source.
    mesh: to cut the experts over; only this process's are ever in its memory.

    Raises ValueError on a damaged checkpoint, and where training kept fewer than are to be averaged.
    """
    model = outline(checkpoints, vocabulary, longest=longest, config=config)
    if mesh is not None:
        cut_experts(model, mesh)
    num_positions = len(model.positions)
    model.to_empty(device=device)
    if vocabulary.shared:  # to_empty unties
        model.source_embedding_VM = model.target_embedding_VM
    model.positions = sinusoids(num_positions, model.config.dim).to(device)
    load_weights(choose(checkpoints, config), model, mesh)
    return model.eval()


def outline(checkpoints: Path, vocabulary: Vocabulary, *, longest: int, config: DecodeConfig) -> Transformer:
    """The whole model as `load_model` makes it, but without memory: on torch's meta device."""
    chosen = choose(checkpoints, config)
    with torch.device("meta"):
        return Transformer(
            build(ModelConfig, read_state(chosen[0])["model"]),
            source_vocabulary=vocabulary.source_size,
            target_vocabulary=vocabulary.target_size,
            shared=vocabulary.shared,
            max_positions=max(longest, max_length(longest, config)),
        )


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
