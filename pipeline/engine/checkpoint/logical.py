"""Logical checkpoints hold full parameters and moments by name, and any topology can write and read them.

A checkpoint is a directory with safetensors shards and `state.json`. torch.distributed.checkpoint plans and reads the
shards, without pickle. `state.json` has everything that is not a tensor, the sha256 of each shard and its own: `shards`
are the files that decoding reads, `resume_shards` those with what only training needs. Older versions had one kind. The
directory is written under another name and then renamed, so a crash leaves the previous checkpoint untouched.
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

from pipeline.checked_json import dump_checked
from pipeline.engine.checkpoint.names import RESUME_SHARDS, STATE, WEIGHTS
from pipeline.engine.checkpoint.shard_writer import ShardWriter
from pipeline.engine.checkpoint.weights import FORMAT, verify, weights_of
from pipeline.files import sync

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
    """Publish a checkpoint at `directory`. A collective of `group`, in which every process writes its shards.

    published: called on the first process afterwards. An OSError of it fails the save as well.

    Raises OSError on all processes if the disk of one fails.
    """
    partial = directory.with_name(directory.name + PARTIAL)

    def publish(shards: dict[str, str]) -> None:
        weights = {name: sha256 for name, sha256 in shards.items() if name.startswith(WEIGHTS)}
        rest = {name: sha256 for name, sha256 in shards.items() if name not in weights}
        text = dump_checked({"format": FORMAT, **state, "shards": weights, RESUME_SHARDS: rest})
        (partial / STATE).write_text(text, encoding="utf-8")
        sync(partial / STATE)
        sync(partial)
        partial.rename(directory)
        sync(directory.parent)
        published()

    writer = ShardWriter(partial, weights_of(state), publish)
    try:
        state_dict_saver.save(tensors, storage_writer=writer, process_group=group)
    except CheckpointException as error:  # a BaseException, the same on all processes
        if dist.get_rank() == 0:
            shutil.rmtree(partial, ignore_errors=True)  # half a checkpoint is useless and takes space
        causes = [cause for cause, _ in error.failures.values()]
        disk = next((cause for cause in causes if isinstance(cause, OSError)), None)
        if disk is None:
            raise RuntimeError(f"{directory} could not be written: {causes[0]}") from error
        raise OSError(disk.errno, disk.strerror, str(directory)) from error


def load(directory: Path, tensors: dict[str, Tensor]) -> None:
    """Fill tensors in place. They are plain or DTensors, cut as this topology does. A collective."""
    state_dict_loader.load(tensors, storage_reader=HuggingFaceStorageReader(str(directory)))


def newest(root: Path) -> Path | None:
    """Return the newest intact checkpoint below `root`, or None. Warn about newer ones that are damaged.

    A half-written checkpoint has another name and is ignored. Raises ValueError if all checkpoints are damaged.
    """
    paths = [path for path in root.iterdir() if NAME.fullmatch(path.name) and (path / STATE).exists()]
    paths.sort(key=lambda path: int(path.name.removeprefix("step-")), reverse=True)
    for index, path in enumerate(paths):
        try:
            verify(path, whole=True)
        except ValueError as error:
            older = paths[index + 1].name if index + 1 < len(paths) else None
            if older is None:
                raise ValueError(f"{error}; there is no older one: delete {root} to start anew") from error
            logger.warning("%s; taking %s instead", error, older)
        else:
            return path
    return None


def code_version() -> str:
    """Return a hash of torch's version and of the sources that decide how training continues from a checkpoint."""
    root = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256(torch.__version__.encode())
    for package in ("batch", "engine", "jobs", "model", "parallel", "train"):
        for file in sorted((root / package).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def first_decides(choose: Callable[[], Path | None]) -> Path | None:
    """Return the first process's choice on all processes. Its ValueError is raised on all of them. A collective."""
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
