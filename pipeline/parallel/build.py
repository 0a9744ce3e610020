"""Build a model that is cut over processes, without the whole model in any process."""

import torch

from pipeline.model.adapters import add_adapters
from pipeline.model.config import ModelConfig
from pipeline.model.initialization import Part, initialize
from pipeline.model.lora import LoraConfig
from pipeline.model.transformer import FIRST_POSITION, Transformer, sinusoids
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.partition import parameter_cuts, partition


def build(
    config: ModelConfig,
    mesh: Mesh,
    *,
    source_vocabulary: int,
    target_vocabulary: int,
    shared: bool,
    max_positions: int,
    seed: int,
    lora: LoraConfig | None = None,
) -> Transformer:
    """Return this process's part of a model with its initial weights, on the CPU. lora: its adapters, if it has any.

    The bits are those of a whole model that is initialised and then partitioned. Raises ValueError if a size is not
    divisible by the number of parts.
    """
    with torch.device("meta"):
        model = Transformer(
            config,
            source_vocabulary=source_vocabulary,
            target_vocabulary=target_vocabulary,
            shared=shared,
            max_positions=0,
        )
        if lora is not None:
            add_adapters(model, lora)
    partition(model, mesh)
    materialize(model, max_positions=max_positions, device=torch.device("cpu"))
    initialize(model, seed, parts_of(model, mesh))
    return model


def materialize(model: Transformer, *, max_positions: int, device: torch.device) -> None:
    """Allocate the parameters of a model on the meta device. They stay uninitialised."""
    shared = model.source_embedding_VM is model.target_embedding_VM
    model.to_empty(device=device)
    if shared:  # to_empty has made two parameters of one
        model.source_embedding_VM = model.target_embedding_VM
    model.positions = sinusoids(max_positions + FIRST_POSITION, model.config.dim).to(device)


def parts_of(model: Transformer, mesh: Mesh) -> dict[str, Part]:
    """Return, for every parameter that is cut, which part of the whole this process has, by name."""
    named, parts = dict(model.named_parameters()), {}
    for name, cuts in parameter_cuts(model, mesh.layout).items():
        shape, starts = list(named[name].shape), [0] * named[name].dim()
        for axis, dim in cuts.items():
            starts[dim] = mesh.rank(axis) * shape[dim]
            shape[dim] *= mesh.size(axis)
        parts[name] = Part(shape=tuple(shape), starts=tuple(starts))
    return parts
