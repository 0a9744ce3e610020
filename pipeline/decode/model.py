"""Loading of a trained model for decoding, whole or with its experts cut over processes."""

import json
from pathlib import Path
from typing import Literal

import torch

from pipeline.decode.config import DecodeConfig
from pipeline.decode.experts.pruned import cut
from pipeline.decode.experts.pruning import Pruning
from pipeline.decode.search.search import max_length
from pipeline.engine.checkpoint.weights import load_weights, read_state, shapes_of
from pipeline.model.config import ModelConfig
from pipeline.model.moe.conditional import Conditional
from pipeline.model.moe.routers import Router
from pipeline.model.norm import Norm
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
    """Return the model of the best checkpoint, or of the mean of several, in `config.precision`.

    checkpoints: directory of checkpoints that a training run wrote.
    longest: tokens of the longest source; call `Transformer.reach` for longer ones.
    mesh: processes to cut the experts over. Each of them reads and holds its own experts only.
    experts: path of a pruning, or empty for all experts. Only the experts that it keeps are in memory.
    Raises ValueError if a checkpoint is damaged or has another vocabulary, or if training kept fewer checkpoints than
    are to be averaged.
    """
    model = outline(checkpoints, vocabulary, config)
    rows = cut(model, Pruning.read(Path(experts)).experts) if experts else {}
    if mesh is not None:
        partition(model, mesh)
    materialize(model, max_positions=max(longest, max_length(longest, config)), device=device)
    load_weights(choose(checkpoints, config), model, mesh, rows)
    set_precision(model, config.precision)
    return model.eval()


def outline(checkpoints: Path, vocabulary: Vocabulary, config: DecodeConfig) -> Transformer:
    """Return the whole model of `load_model` without weights (on torch's meta device) and without positions.

    Raises ValueError as `load_model` does.
    """
    directories = choose(checkpoints, config)
    for directory in directories:
        check_vocabulary(directory, vocabulary)
    with torch.device("meta"):
        return Transformer(
            build(ModelConfig, read_state(directories[0])["model"]),
            source_vocabulary=vocabulary.source_size,
            target_vocabulary=vocabulary.target_size,
            shared=vocabulary.shared,
            max_positions=0,
        )


def set_precision(model: Transformer, precision: Literal["fp32", "bf16", "fp64"]) -> None:
    """Convert a float32 model in place: all of it to fp64, or its matrices to bf16 (not norms, gates and positions)."""
    if precision == "fp64":
        model.double()
    if precision == "bf16":
        for module in model.modules():
            if not isinstance(module, Norm | Conditional | Router):
                for parameter in module.parameters(recurse=False):
                    parameter.data = parameter.data.bfloat16()


def check_vocabulary(directory: Path, vocabulary: Vocabulary) -> None:
    """Raise ValueError if a checkpoint was trained with another vocabulary.

    A checkpoint of an older version does not name its vocabulary. Then the sizes are compared.
    """
    trained = read_state(directory).get("vocabulary")
    if trained is not None:
        expected, actual = f"vocabulary {trained[:16]}", f"vocabulary {vocabulary.sha256[:16]}"
        differs = trained != vocabulary.sha256
    else:
        shapes = shapes_of(directory)
        target = shapes["target_embedding_VM"][0]
        sizes = shapes.get("source_embedding_VM", (target,))[0], target
        expected, actual = (
            f"one of {source} and {target} pieces"
            for source, target in (sizes, (vocabulary.source_size, vocabulary.target_size))
        )
        differs = expected != actual or ("source_embedding_VM" not in shapes) != vocabulary.shared
    if differs:
        raise ValueError(
            f"checkpoint {directory} was trained with {expected}, and {vocabulary.directory} is {actual}; give the "
            "vocabulary that the run was trained with (systems.moe.artifacts of its run.json)"
        )


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
