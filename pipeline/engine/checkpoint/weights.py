"""Read weights and state from logical checkpoints, for decoding.

This module does not import torch.distributed.checkpoint, because that takes longer than to read a small model.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import safe_open
from torch import Tensor

from pipeline.checked_json import load_checked
from pipeline.engine.checkpoint.names import RESUME_SHARDS, STATE
from pipeline.model.adapters import merged_difference
from pipeline.model.components import is_adapter
from pipeline.model.lora import weight_of
from pipeline.model.transformer import Layer, Transformer
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.partition import expert_parameters

FORMAT = 1


def load_weights(
    directories: Sequence[Path],
    model: Transformer,
    mesh: Mesh | None = None,
    kept: Mapping[str, Tensor] | None = None,
    convert: Callable[[Layer], None] | None = None,
) -> None:
    """Fill a model with the weights of a checkpoint, or with the mean of several ones. No collective.

    mesh: cuts the experts. Only the experts of this process are read.
    kept: the checkpoint's rows that remain in a parameter, by name, if it has lost some.
    convert: called with each layer as soon as its weights are there, so that it may make them smaller before the next
        layer needs memory.

    Raises ValueError if a checkpoint is damaged. If the model is cut, one process alone may raise it.
    """
    rank = 0 if mesh is None else mesh.devices["expert"].get_local_rank()
    cut = expert_parameters(model) if mesh is not None else set()
    first = {name: (rank * len(model.get_parameter(name)),) for name in cut}
    for directory in directories:
        verify(directory, mesh)
    for layer, names in by_layer(model):
        _load_mean(directories, {name: model.get_parameter(name).detach() for name in names}, first, kept or {})
        if convert is not None and layer is not None:
            convert(layer)


def by_layer(model: Transformer) -> Iterator[tuple[Layer | None, list[str]]]:
    """Yield each layer with the names of its parameters, and at last None with the other names."""
    other_names = {name for name, _ in model.named_parameters()}
    for place, module in model.named_modules():
        if isinstance(module, Layer):
            names = [f"{place}.{name}" for name, _ in module.named_parameters()]
            other_names -= set(names)
            yield module, names
    yield None, sorted(other_names)


def _load_mean(
    directories: Sequence[Path],
    parameters: Mapping[str, Tensor],
    first: Mapping[str, Sequence[int]],
    kept: Mapping[str, Tensor],
) -> None:
    """Fill some parameters as `load_weights` does. first: where a process' part of its experts begins."""
    kept = {name: rows for name, rows in kept.items() if name in parameters}
    for count, directory in enumerate(directories, start=1):
        into = parameters if count == 1 else {name: torch.empty_like(p) for name, p in parameters.items()}
        _read(directory, {name: tensor for name, tensor in into.items() if name not in kept}, first)
        shapes = shapes_of(directory) if kept else {}
        for name, rows in kept.items():  # one at a time, because together they need the memory that pruning saves
            whole = {name: torch.empty(shapes[name])}
            _read(directory, whole, {})
            into[name].copy_(whole[name].index_select(0, rows))
        if count > 1:
            for name, mean in parameters.items():
                mean += into[name].sub_(mean).div_(count)


def read_parts(
    directory: Path,
    into: Mapping[str, Tensor],
    first: Mapping[str, Sequence[int]],
    sources: Mapping[str, str] | None = None,
) -> None:
    """Fill tensors in place, with the moving average if training kept one. Raises ValueError if damaged.

    into: tensors by name of the parameter.
    first: start indices of the leading dimensions, for tensors that are a part of a parameter.
    sources: for each tensor the name of the weights that it gets, by default its own.
    """
    verify(directory)
    _read(directory, into, first, sources)


def shapes_of(directory: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a checkpoint's weights by name, without adapters, which reading merges into the weights."""
    return {name: shape for name, shape in _all_shapes(directory).items() if not is_adapter(name)}


def adapters_of(directory: Path, weights: Collection[str] | None = None) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the matrices A and B of each adapter by the name of its weight; empty for a run without adapters.

    weights: names of weights; None is all.
    """
    shapes = {name: shape for name, shape in _all_shapes(directory).items() if is_adapter(name)}
    matrices = {
        name: torch.empty(shape) for name, shape in shapes.items() if weights is None or weight_of(name) in weights
    }
    _fill(directory, matrices, {}, {name: name for name in matrices})
    by_weight: dict[str, dict[str, Tensor]] = {}
    for name, matrix in matrices.items():
        by_weight.setdefault(weight_of(name), {})[name.rpartition(".")[2][0]] = matrix
    return {weight: (pair["a"], pair["b"]) for weight, pair in by_weight.items()}


def _all_shapes(directory: Path) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for name, offsets, part in _parts(directory):
        ends = tuple(start + length for start, length in zip(offsets, part.get_shape(), strict=True))
        shapes[name] = tuple(map(max, ends, shapes.get(name, ends)))
    return shapes


def _read(
    directory: Path,
    into: Mapping[str, Tensor],
    first: Mapping[str, Sequence[int]],
    sources: Mapping[str, str] | None = None,
) -> None:
    """Fill tensors as `read_parts` does, without a check of the shards. Adapters are merged into the weights."""
    sources = sources or {name: name for name in into}
    _fill(directory, into, first, sources)
    lora = read_state(directory).get("lora")
    if lora is None:
        return
    for weight, (a, b) in adapters_of(directory, {sources[name] for name in into}).items():
        difference = merged_difference(a.double(), b.double(), lora["alpha"] / lora["rank"])
        for name in into:
            if sources[name] == weight:
                tensor, begins = into[name], [*first.get(name, ()), *[0] * difference.dim()]
                part = tuple(slice(begin, begin + size) for begin, size in zip(begins, tensor.shape, strict=False))
                tensor.copy_(tensor.double() + difference[part].to(tensor.device))


def _fill(
    directory: Path, into: Mapping[str, Tensor], first: Mapping[str, Sequence[int]], sources: Mapping[str, str]
) -> None:
    """Fill tensors by the parts of weights in the shards."""
    takers: dict[str, list[str]] = {}
    for name in into:
        takers.setdefault(sources[name], []).append(name)
    missing = {name: tensor.numel() for name, tensor in into.items()}
    for source, offsets, part in _parts(directory):
        for name in takers.get(source, ()):
            tensor = into[name]
            if (dims := len(part.get_shape())) != tensor.dim():
                raise ValueError(f"checkpoint {directory}: {source} has {dims} dimensions, the model's {tensor.dim()}")
            begins = first.get(name, ())
            missing[name] -= _copy(tensor, [*begins, *[0] * (tensor.dim() - len(begins))], part, offsets)
    if lost := [name for name, number in missing.items() if number]:
        raise ValueError(f"checkpoint {directory} does not hold {', '.join(lost[:3])} as the model has it")


def _copy(tensor: Tensor, starts: Sequence[int], part: Any, offsets: Sequence[int]) -> int:
    """Copy what a tensor and a saved part have in common. Return the number of elements.

    starts, offsets: where the tensor and the part begin in the whole parameter.
    """
    target_slices, part_slices = [], []
    for start, size, offset, length in zip(starts, tensor.shape, offsets, part.get_shape(), strict=True):
        begin, end = max(start, offset), min(start + size, offset + length)
        target_slices.append(slice(begin - start, max(begin, end) - start))
        part_slices.append(slice(begin - offset, max(begin, end) - offset))
    target = tensor[tuple(target_slices)]
    if target.numel():
        target.copy_(part[tuple(part_slices)])
    return target.numel()


def _parts(directory: Path) -> Iterator[tuple[str, list[int], Any]]:
    """Yield the name, the offsets and the slice (of safetensors) of each part of a weight."""
    state = read_state(directory)
    prefix = weights_of(state)
    for shard in sorted(state["shards"]):
        with safe_open(str(directory / shard), framework="pt") as file:
            places = json.loads(file.metadata()["DCP_SHARDING_INFO"])
            for key in file.keys():  # noqa: SIM118 - file is not a mapping
                if key.startswith(prefix):
                    yield key.removeprefix(prefix), places[key]["saved_offsets"], file.get_slice(key)


def read_state(directory: Path) -> dict[str, Any]:
    """Return the state that is not in tensors. Raises ValueError if it is damaged or of another format."""
    try:
        state = load_checked((directory / STATE).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"checkpoint {directory} is damaged: {STATE} cannot be read: {error}") from error
    if state["format"] != FORMAT:
        raise ValueError(f"{directory} has checkpoint format {state['format']}; this version reads {FORMAT}")
    return state


def weights_of(state: Mapping[str, Any]) -> str:
    """Return how the names of the tensors begin that decoding reads: the moving average, if training kept one."""
    return "ema." if state.get("ema") else "model."


def verify(directory: Path, mesh: Mesh | None = None, *, whole: bool = False) -> None:
    """Raise ValueError if a shard is missing or differs from what was written.

    mesh: its processes share the work.
    whole: look also at what only a resumed training reads. A checkpoint of version 0.2 has it in the same shards.
    """
    state = read_state(directory)
    shards = sorted({**state["shards"], **(state.get(RESUME_SHARDS, {}) if whole else {})}.items())
    for name, expected in shards if mesh is None else shards[dist.get_rank() :: dist.get_world_size()]:
        shard = directory / name
        if not shard.exists() or _sha256(shard) != expected:
            raise ValueError(f"checkpoint {directory} is damaged: {name} is missing or differs from what was written")


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
