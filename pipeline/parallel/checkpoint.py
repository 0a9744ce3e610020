"""Logical checkpoints: full parameters and moments by name, whatever the topology that wrote them.

A checkpoint is a directory of safetensors shards (planned and read by torch.distributed.checkpoint, no pickle) and
`state.json` with everything that is not a tensor and the sha256 of each shard. It is written beside its place and
renamed into it: a crash leaves the previous one untouched.
"""

import hashlib
import json
import logging
import os
import re
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.tensor import DTensor, Shard

from pipeline.model.transformer import Transformer
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.partition import expert_parameters
from pipeline.parallel.shard_writer import ShardWriter

logger = logging.getLogger(__name__)

FORMAT = 1
STATE = "state.json"
PARTIAL = ".partial"  # ends the name of a checkpoint that is being written
NAME = re.compile(r"step-(\d+)")


def save(
    directory: Path,
    tensors: dict[str, Tensor],
    state: dict[str, Any],
    *,
    group: dist.ProcessGroup | None = None,
    published: Callable[[], None] = lambda: None,
) -> None:
    """Publish a checkpoint at `directory`. A collective of `group`: every process brings its shards; OSError is raised
    on all of them. published: called on the first process afterwards; its OSError counts too."""
    partial = directory.with_name(directory.name + PARTIAL)

    def publish(shards: dict[str, str]) -> None:
        with (partial / STATE).open("w", encoding="utf-8") as stream:
            json.dump({"format": FORMAT, **state, "shards": shards}, stream)
            stream.flush()
            os.fsync(stream.fileno())
        partial.rename(directory)
        published()

    try:
        state_dict_saver.save(tensors, storage_writer=ShardWriter(partial, publish), process_group=group)
    except CheckpointException as error:  # a BaseException, the same on all processes
        if dist.get_rank() == 0:
            shutil.rmtree(partial, ignore_errors=True)  # half a checkpoint is of no use, its room may be
        causes = [cause for cause, _ in error.failures.values()]
        disk = next((cause for cause in causes if isinstance(cause, OSError)), None)
        if disk is None:
            raise RuntimeError(f"{directory} could not be written: {causes[0]}") from error
        raise OSError(disk.errno, disk.strerror, str(directory)) from error


def load(directory: Path, tensors: dict[str, Tensor]) -> None:
    """Fill `tensors` (plain or DTensors, this topology's own cut) in place. A collective."""
    state_dict_loader.load(tensors, storage_reader=HuggingFaceStorageReader(str(directory)))


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
    experts = expert_parameters(model) if mesh is not None else set()
    for count, directory in enumerate(directories, start=1):
        verify(directory, mesh)
        into = parameters if count == 1 else {name: torch.empty_like(p) for name, p in parameters.items()}
        whole = {name: t for name, t in into.items() if name not in kept}
        _read(directory, {name: _part(t, mesh) if mesh and name in experts else t for name, t in whole.items()})
        for name, rows in kept.items():  # one at a time: together they would need what a pruning saves
            _read_rows(directory, name, rows, into[name])
        if count > 1:
            for name, mean in parameters.items():
                mean += into[name].sub_(mean).div_(count)


def read_weights(directory: Path, shapes: Mapping[str, Sequence[int]]) -> dict[str, Tensor]:
    """Whole weights by parameter's name: the moving average where training kept one. Raises ValueError if damaged."""
    verify(directory)
    tensors = {name: torch.empty(tuple(shape)) for name, shape in shapes.items()}
    _read(directory, tensors)
    return tensors


def _read(directory: Path, into: Mapping[str, Tensor]) -> None:
    """Fill tensors in place by parameter's name."""
    prefix = _prefix(directory)
    tensors = {prefix + name: tensor for name, tensor in into.items()}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # that is meant
        state_dict_loader.load(tensors, storage_reader=HuggingFaceStorageReader(str(directory)), no_dist=True)


def _read_rows(directory: Path, name: str, rows: Tensor, into: Tensor) -> None:
    every = torch.empty(shapes_of(directory)[name])
    _read(directory, {name: every})
    into.copy_(every.index_select(0, rows))


def _part(local: Tensor, mesh: Mesh) -> Tensor:
    """Memory of this process's experts, as a part of the tensor of all."""
    return DTensor.from_local(local, mesh.devices["expert"], [Shard(0)], run_check=False)


def shapes_of(directory: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of a checkpoint's weights by parameter's name."""
    prefix = _prefix(directory)
    found = HuggingFaceStorageReader(str(directory)).read_metadata().state_dict_metadata
    return {
        name.removeprefix(prefix): tuple(cast(TensorStorageMetadata, of).size)
        for name, of in found.items()
        if name.startswith(prefix)
    }


def _prefix(directory: Path) -> str:
    return "ema." if read_state(directory).get("ema") else "model."


def read_state(directory: Path) -> dict[str, Any]:
    """What a checkpoint holds beside tensors. Raises ValueError on a format of another version, or if damaged."""
    try:
        state: dict[str, Any] = json.loads((directory / STATE).read_text(encoding="utf-8"))
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


def newest(root: Path) -> Path | None:
    """The newest intact checkpoint below `root`, with a warning for every newer one that is damaged.

    A half-written one has another name and is not seen. Raises ValueError if there are some and all are damaged.
    """
    found = [path for path in root.iterdir() if NAME.fullmatch(path.name) and (path / STATE).exists()]
    found.sort(key=lambda path: int(path.name.removeprefix("step-")), reverse=True)
    for index, path in enumerate(found):
        try:
            verify(path)
        except ValueError as error:
            older = found[index + 1].name if index + 1 < len(found) else None
            if older is None:
                raise ValueError(f"{error}; there is no older one: delete {root} to start anew") from error
            logger.warning("%s; taking %s instead", error, older)
        else:
            return path
    return None


def code_version() -> str:
    """Hash of the sources that decide how training goes on from a checkpoint, and the version of torch."""
    root = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256(torch.__version__.encode())
    for package in ("batch", "model", "parallel", "train"):
        for file in sorted((root / package).glob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def first_decides(choose: Callable[[], Path | None]) -> Path | None:
    """The first process's choice, on all processes; so is its ValueError."""
    answer: list[Any] = [None, None]
    if dist.get_rank() == 0:
        try:
            answer[0] = choose()
        except ValueError as error:
            answer[1] = str(error)
    dist.broadcast_object_list(answer, src=0)
    if answer[1] is not None:
        raise ValueError(answer[1])
    return cast("Path | None", answer[0])


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
