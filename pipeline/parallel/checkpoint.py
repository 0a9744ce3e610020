"""Logical checkpoints: full parameters and moments by name, whatever the topology that wrote them.

A checkpoint is a directory of safetensors shards (torch.distributed.checkpoint, no pickle) and `state.json` with
everything that is not a tensor and the sha256 of each shard. It is written beside its place and renamed into it: a
crash leaves the previous one untouched.
"""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter

from pipeline.model.transformer import Transformer

logger = logging.getLogger(__name__)

FORMAT = 1
STATE = "state.json"


def save(directory: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Publish a checkpoint at `directory`. A collective: every process brings its shards; OSError is raised on all."""
    partial = directory.with_name(directory.name + ".partial")
    rank = dist.get_rank()

    def prepare() -> None:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)

    def publish() -> None:
        shards = {file.name: _sha256(file) for file in sorted(partial.glob("*.safetensors"))}
        for name in shards:
            with (partial / name).open("rb") as stream:
                os.fsync(stream.fileno())
        record = {"format": FORMAT, **state, "shards": shards}
        with (partial / STATE).open("w", encoding="utf-8") as stream:
            json.dump(record, stream)
            stream.flush()
            os.fsync(stream.fileno())
        partial.rename(directory)

    _on_first(rank, prepare)
    try:
        state_dict_saver.save(tensors, storage_writer=HuggingFaceStorageWriter(str(partial), save_distributed=True))
    except CheckpointException as error:  # a BaseException, the same on all processes
        first = next(iter(error.failures.values()))[0]
        raise (
            first if isinstance(first, OSError) else OSError(f"{directory} could not be written: {first}")
        ) from error
    _on_first(rank, publish)


def load(directory: Path, tensors: dict[str, Tensor]) -> None:
    """Fill `tensors` (plain or DTensors, this topology's own cut) in place. A collective."""
    state_dict_loader.load(tensors, storage_reader=HuggingFaceStorageReader(str(directory)))


def load_weights(directory: Path, model: Transformer) -> None:
    """Fill a whole model with a checkpoint's weights, in one process without a process group."""
    verify(directory)
    tensors = {f"model.{name}": torch.empty_like(p, dtype=torch.float32) for name, p in model.named_parameters()}
    state_dict_loader.load(tensors, storage_reader=HuggingFaceStorageReader(str(directory)), no_dist=True)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[f"model.{name}"])


def read_state(directory: Path) -> dict[str, Any]:
    """What a checkpoint holds beside tensors. Raises ValueError on a format of another version."""
    state: dict[str, Any] = json.loads((directory / STATE).read_text(encoding="utf-8"))
    if state["format"] != FORMAT:
        raise ValueError(f"{directory} has checkpoint format {state['format']}; this version reads {FORMAT}")
    return state


def verify(directory: Path) -> None:
    """Raise ValueError where a shard is missing or not what was written."""
    for name, expected in read_state(directory)["shards"].items():
        shard = directory / name
        if not shard.exists() or _sha256(shard) != expected:
            raise ValueError(f"checkpoint {directory} is damaged: {name} is missing or differs from what was written")


def newest(root: Path) -> Path | None:
    """The newest intact checkpoint below `root`, with a warning for every newer one that is damaged.

    A half-written one has another name and is not seen. Raises ValueError if there are some and all are damaged.
    """
    found = [path for path in root.glob("step-*") if (path / STATE).exists()]
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


def _on_first(rank: int, action: Any) -> None:
    """Run on the first process; whether it failed is told to all, so that none waits for a dead one."""
    failure: OSError | None = None
    if rank == 0:
        try:
            action()
        except OSError as error:
            failure = error
    failed = torch.tensor(int(failure is not None))
    if dist.get_backend() == "nccl":
        failed = failed.cuda()
    dist.broadcast(failed, src=0)
    if failure is not None:
        raise failure
    if failed:
        raise OSError("the first process could not write the checkpoint; its error says why")


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
