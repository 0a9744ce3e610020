"""Logical checkpoints: full parameters and moments by name, whatever the topology that wrote them.

A checkpoint is a directory of safetensors shards (planned and read by torch.distributed.checkpoint, no pickle) and
`state.json` with everything that is not a tensor, the sha256 of each shard and its own. It is written beside its place
and renamed into it: a crash leaves the previous one untouched.
"""

import hashlib
import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

from pipeline.artifact import sync
from pipeline.checked_json import dump_checked
from pipeline.parallel.shard_writer import ShardWriter
from pipeline.parallel.weights import FORMAT, STATE, verify

logger = logging.getLogger(__name__)

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
        text = dump_checked({"format": FORMAT, **state, "shards": shards})
        (partial / STATE).write_text(text, encoding="utf-8")
        sync(partial / STATE)
        sync(partial)
        partial.rename(directory)
        sync(directory.parent)
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
