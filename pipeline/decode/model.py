"""A trained model for decoding, whole or with its experts cut over processes."""

import json
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from pipeline.decode.config import DecodeConfig
from pipeline.decode.pruned import cut
from pipeline.decode.pruning import Pruning
from pipeline.decode.search import max_length
from pipeline.engine.checkpoint.weights import load_weights, read_state, shapes_of
from pipeline.model.config import ModelConfig
from pipeline.model.moe.conditional import Conditional
from pipeline.model.moe.routers import Router
from pipeline.model.transformer import Transformer
from pipeline.parallel.build import materialize
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.partition import partition
from pipeline.schema import build
from pipeline.vocab.tokenizer import Vocabulary


def load_model(
    checkpoints: Path,
    vocabulary: Vocabulary,
    *,
    longest: int = 0,
    config: DecodeConfig,
    device: torch.device,
    mesh: Mesh | None = None,
    experts: str = "",
) -> Transformer:
    """The model of the best checkpoint, or of the mean of several, in `config.precision`. longest: tokens of the
    longest source; for longer ones, `Transformer.reach`. mesh: to cut the experts over; only this process's are ever in
    its memory. experts: path of a pruning, empty for all of them; only those that it keeps stay in memory.

    Raises ValueError on a damaged checkpoint, on one of another vocabulary, and where training kept fewer than are to
    be averaged.
    """
    model = outline(checkpoints, vocabulary, config)
    kept = cut(model, Pruning.read(Path(experts)).experts) if experts else {}
    if mesh is not None:
        partition(model, mesh)
    materialize(model, max_positions=max(longest, max_length(longest, config)), device=device)
    load_weights(choose(checkpoints, config), model, mesh, kept)
    set_precision(model, config.precision)
    return model.eval()


def outline(checkpoints: Path, vocabulary: Vocabulary, config: DecodeConfig) -> Transformer:
    """The whole model as `load_model` makes it, but without memory (on torch's meta device) and positions. Raises
    ValueError as `load_model`."""
    chosen = choose(checkpoints, config)
    for directory in chosen:
        check_vocabulary(directory, vocabulary)
    with torch.device("meta"):
        return Transformer(
            build(ModelConfig, read_state(chosen[0])["model"]),
            source_vocabulary=vocabulary.source_size,
            target_vocabulary=vocabulary.target_size,
            shared=vocabulary.shared,
            max_positions=0,
        )


def set_precision(model: Transformer, precision: Literal["fp32", "bf16", "fp64"]) -> None:
    """Change a float32 model. fp64: all of it. bf16: what is multiplied; norms, gates and positions stay."""
    if precision == "fp64":
        model.double()
    if precision == "bf16":
        for module in model.modules():
            if not isinstance(module, nn.LayerNorm | Conditional | Router):
                for parameter in module.parameters(recurse=False):
                    parameter.data = parameter.data.bfloat16()


def check_vocabulary(directory: Path, vocabulary: Vocabulary) -> None:
    """Raise ValueError where a checkpoint was trained with another vocabulary; one of an older version, of other
    sizes."""
    trained = read_state(directory).get("vocabulary")
    if trained is not None:
        there, here = f"vocabulary {trained[:16]}", f"vocabulary {vocabulary.sha256[:16]}"
        differs = trained != vocabulary.sha256
    else:
        shapes = shapes_of(directory)
        target = shapes["target_embedding_VM"][0]
        sizes = shapes.get("source_embedding_VM", (target,))[0], target
        there, here = (
            f"one of {source} and {target} pieces"
            for source, target in (sizes, (vocabulary.source_size, vocabulary.target_size))
        )
        differs = there != here or ("source_embedding_VM" not in shapes) != vocabulary.shared
    if differs:
        raise ValueError(
            f"checkpoint {directory} was trained with {there}, and {vocabulary.directory} is {here}; give the "
            "vocabulary that the run was trained with (systems.moe.artifacts of its run.json)"
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
