"""Loading of a trained model for decoding, whole or with its experts cut over processes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch

from pipeline.decode.checkpoints import choose
from pipeline.decode.config import DecodeConfig
from pipeline.decode.experts.pruned import cut
from pipeline.decode.experts.pruning import Pruning
from pipeline.decode.mean_weights import check_mean
from pipeline.decode.quantization import quantize
from pipeline.decode.search.ensemble import Ensemble
from pipeline.decode.search.search import max_length
from pipeline.engine.checkpoint.weights import load_weights, read_state, shapes_of
from pipeline.jobs.default_precision import check_int8
from pipeline.model.config import ModelConfig
from pipeline.model.moe.conditional import Conditional
from pipeline.model.moe.routers import Router
from pipeline.model.norm import Norm
from pipeline.model.transformer import Layer, Transformer
from pipeline.parallel.build import materialize
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.partition import partition
from pipeline.schema import build
from pipeline.vocab.tokenizer import Vocabulary


def load_ensemble(
    checkpoints: Sequence[Path], vocabulary: Vocabulary, *, longest: int = 0, config: DecodeConfig, device: torch.device
) -> Transformer | Ensemble:
    """Return the models of several runs as `config.combine` says: an ensemble, or one model with their mean weights.

    checkpoints: directory of each run. Other arguments and errors are as in `load_model`.
    """
    first, *further_runs = checkpoints
    if config.combine == "weights":
        return load_model(first, vocabulary, longest=longest, config=config, device=device, further_runs=further_runs)
    members = [load_model(path, vocabulary, longest=longest, config=config, device=device) for path in checkpoints]
    return Ensemble(members, config.combine)


def load_model(
    checkpoints: Path,
    vocabulary: Vocabulary,
    *,
    longest: int = 0,
    config: DecodeConfig,
    device: torch.device,
    mesh: Mesh | None = None,
    experts: str = "",
    further_runs: Sequence[Path] = (),
) -> Transformer:
    """Return the model of the best checkpoint, or of the mean of several, in `config.precision`.

    checkpoints: directory of checkpoints that a training run wrote.
    longest: tokens of the longest source; call `Transformer.reach` for longer ones.
    mesh: processes to cut the experts over. Each of them reads and holds its own experts only.
    experts: path of a pruning, or empty for all experts. Only the experts that it keeps are in memory.
    further_runs: directories of checkpoints whose weights are averaged with the first run's.
    Raises ValueError if a checkpoint is damaged or has another vocabulary, if training kept fewer checkpoints than are
    to be averaged, or if the models of several runs have different shapes.
    """
    model = outline(checkpoints, vocabulary, config)
    for other in further_runs:
        _check_shapes(model, outline(other, vocabulary, config), other)
    rows = cut(model, Pruning.read(Path(experts)).experts) if experts else {}
    if mesh is not None:
        partition(model, mesh)
    materialize(model, max_positions=max(longest, max_length(longest, config)), device=device)
    directories = [path for run in (checkpoints, *further_runs) for path in choose(run, config)]
    load_weights(directories, model, mesh, rows, convert=lambda layer: set_precision(layer, config.precision))
    set_precision(model, config.precision)
    return model.eval()


def _check_shapes(model: Transformer, other: Transformer, checkpoints: Path) -> None:
    """Raise ValueError if the weights of another run's model have other names, shapes or meanings."""
    shapes, other_shapes = ({name: (*p.shape,) for name, p in m.named_parameters()} for m in (model, other))
    for name in {**shapes, **other_shapes}:
        if shapes.get(name) != other_shapes.get(name):
            raise ValueError(
                f"decode.combine=weights: {name} has shape {other_shapes.get(name)} in {checkpoints}, and "
                f"{shapes.get(name)} in the run; take runs that started from the same weights, or combine=linear"
            )
    check_mean(model.config, other.config, "the run", str(checkpoints))


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


def set_precision(module: Layer | Transformer, precision: Literal["fp32", "bf16", "fp64", "int8"]) -> None:
    """Convert a float32 model in place: all of it to fp64, its matrices to bf16 (not norms, gates and positions).

    int8 rounds the matrices that activations are multiplied by. Layers of a model that are converted already stay.
    Raises ValueError if this processor is too old for int8, or the model is on a GPU.
    """
    if precision == "int8":
        check_int8(next(module.parameters()).device.type)
        quantize(module)
    if precision == "fp64":
        module.double()
    if precision == "bf16":
        for part in module.modules():
            if not isinstance(part, Norm | Conditional | Router):
                for parameter in part.parameters(recurse=False):
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
