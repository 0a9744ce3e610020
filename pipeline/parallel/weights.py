"""Weights out of logical checkpoints, and what else decoding wants to know of them.

Free of torch.distributed.checkpoint, whose import takes longer than reading a small model.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import safe_open
from torch import Tensor

from pipeline.checked_json import load_checked
from pipeline.model.transformer import Transformer
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.partition import expert_parameters

FORMAT = 1
STATE = "state.json"


def load_weights(
    directories: Sequence[Path], model: Transformer, mesh: Mesh | None = None, kept: Mapping[str, Tensor] | None = None
) -> None:
    """Fill a model with a checkpoint's weights, or with the mean of several; no collective.

    mesh: over which its experts are cut; of them, only this process's are read. kept: rows of the checkpoint that a
    parameter consists of, by its name, where it has not all of them. Raises ValueError if damaged: of a cut model, on
    the process that finds it.
    """
    kept = kept or {}
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    rank = 0 if mesh is None else mesh.devices["expert"].get_local_rank()
    cut = expert_parameters(model) if mesh is not None else set()
    first = {name: (rank * len(parameters[name]),) for name in cut}
    for count, directory in enumerate(directories, start=1):
        verify(directory, mesh)
        into = parameters if count == 1 else {name: torch.empty_like(p) for name, p in parameters.items()}
        _read(directory, {name: tensor for name, tensor in into.items() if name not in kept}, first)
        shapes = shapes_of(directory) if kept else {}
        for name, rows in kept.items():  # one at a time: together they would need what a pruning saves
            every = {name: torch.empty(shapes[name])}
            _read(directory, every, {})
            into[name].copy_(every[name].index_select(0, rows))
        if count > 1:
            for name, mean in parameters.items():
                mean += into[name].sub_(mean).div_(count)


def read_parts(
    directory: Path, into: Mapping[str, Tensor], first: Mapping[str, Sequence[int]], sources: Mapping[str, str]
) -> None:
    """Fill tensors in place by parameter's name. first: where the leading dimensions of one that is a part begin.
    sources: whose weights each of them gets. Raises ValueError if damaged."""
    verify(directory)
    _read(directory, into, first, sources)


def read_weights(directory: Path, shapes: Mapping[str, Sequence[int]]) -> dict[str, Tensor]:
    """Whole weights by parameter's name: the moving average where training kept one. Raises ValueError if damaged."""
    verify(directory)
    tensors = {name: torch.empty(tuple(shape)) for name, shape in shapes.items()}
    _read(directory, tensors, {})
    return tensors


def shapes_of(directory: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of a checkpoint's weights by parameter's name."""
    found: dict[str, tuple[int, ...]] = {}
    for name, offsets, part in _parts(directory):
        ends = tuple(start + length for start, length in zip(offsets, part.get_shape(), strict=True))
        found[name] = tuple(map(max, ends, found.get(name, ends)))
    return found


def _read(
    directory: Path,
    into: Mapping[str, Tensor],
    first: Mapping[str, Sequence[int]],
    sources: Mapping[str, str] | None = None,
) -> None:
    """As `read_parts`; without sources every tensor gets the weights of its own name."""
    takers: dict[str, list[str]] = {}
    for name in into:
        takers.setdefault(name if sources is None else sources[name], []).append(name)
    missing = {name: tensor.numel() for name, tensor in into.items()}
    for source, offsets, part in _parts(directory):
        for name in takers.get(source, ()):
            tensor = into[name]
            if (number := len(part.get_shape())) != tensor.dim():
                raise ValueError(
                    f"checkpoint {directory}: {source} has {number} dimensions, the model's {tensor.dim()}"
                )
            begins = first.get(name, ())
            missing[name] -= _copy(tensor, [*begins, *[0] * (tensor.dim() - len(begins))], part, offsets)
    if lost := [name for name, number in missing.items() if number]:
        raise ValueError(f"checkpoint {directory} does not hold {', '.join(lost[:3])} as the model has it")


def _copy(tensor: Tensor, starts: Sequence[int], part: Any, offsets: Sequence[int]) -> int:
    """What a tensor and a saved part, which begin there in the whole, have in common; how many elements that is."""
    here, there = [], []
    for start, size, offset, length in zip(starts, tensor.shape, offsets, part.get_shape(), strict=True):
        begin, end = max(start, offset), min(start + size, offset + length)
        here.append(slice(begin - start, max(begin, end) - start))
        there.append(slice(begin - offset, max(begin, end) - offset))
    target = tensor[tuple(here)]
    if target.numel():
        target.copy_(part[tuple(there)])
    return target.numel()


def _parts(directory: Path) -> Iterator[tuple[str, list[int], Any]]:
    """Parameter's name, offsets and safetensors' slice of each part of a weight."""
    state = read_state(directory)
    prefix = "ema." if state.get("ema") else "model."
    for shard in sorted(state["shards"]):
        with safe_open(str(directory / shard), framework="pt") as file:
            places = json.loads(file.metadata()["DCP_SHARDING_INFO"])
            for key in file.keys():  # noqa: SIM118 - it is no mapping
                if key.startswith(prefix):
                    yield key.removeprefix(prefix), places[key]["saved_offsets"], file.get_slice(key)


def read_state(directory: Path) -> dict[str, Any]:
    """What a checkpoint holds beside tensors. Raises ValueError on a format of another version, or if damaged."""
    try:
        state = load_checked((directory / STATE).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"checkpoint {directory} is damaged: {STATE} cannot be read: {error}") from error
    if state["format"] != FORMAT:
        raise ValueError(f"{directory} has checkpoint format {state['format']}; this version reads {FORMAT}")
    return state


def verify(directory: Path, mesh: Mesh | None = None) -> None:
    """Raise ValueError where a shard is missing or not what was written. mesh: its processes share the shards out."""
    shards = sorted(read_state(directory)["shards"].items())
    for name, expected in shards if mesh is None else shards[dist.get_rank() :: dist.get_world_size()]:
        shard = directory / name
        if not shard.exists() or _sha256(shard) != expected:
            raise ValueError(f"checkpoint {directory} is damaged: {name} is missing or differs from what was written")


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
