"""Write the shards of a checkpoint, one or two safetensors files per process, hashed while they are written.

What decoding reads and what only a resumed training reads are in files of their own, so that decoding need not hash
the optimizer's moments.

torch.distributed.checkpoint plans which process writes a tensor that several of them hold. Its own safetensors writer
would hold every shard in memory twice, and one process would have to hash all shards.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from pipeline.engine.checkpoint.names import RESUME, WEIGHTS

DTYPES = {
    torch.float32: "F32",
    torch.float64: "F64",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
}


class ShardWriter(StorageWriter):
    """Writes shards into `directory`, which is emptied first. If a write fails, the save fails on all processes.

    weights: beginning of the names of the tensors that decoding reads.
    publish: called on the first process with the sha256 of every shard, once all are on disk. It may fail as well.
    """

    def __init__(self, directory: Path, weights: str, publish: Callable[[dict[str, str]], None]) -> None:
        super().__init__()
        self.directory, self.weights, self.publish = directory, weights, publish

    def reset(self, checkpoint_id: Any = None) -> None:
        pass

    def set_up_storage_writer(self, is_coordinator: bool, *_args: Any, **_kwargs: Any) -> None:
        pass

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Empty the directory and number the plans. The first process calls this before any process writes."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        return [replace(plan, storage_data=index) for index, plan in enumerate(plans, start=1)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        results: list[WriteResult] = []
        for file, is_weight in ((WEIGHTS, True), (RESUME, False)):
            items = [item for item in plan.items if item.index.fqn.startswith(self.weights) == is_weight]
            if items:
                name = f"{file}-{plan.storage_data:05}.safetensors"
                sha256 = write_shard(self.directory / name, {item.index: planner.resolve_data(item) for item in items})
                size = (self.directory / name).stat().st_size
                results.append(WriteResult(index=items[0].index, size_in_bytes=size, storage_data=(name, sha256)))
        future: Future[list[WriteResult]] = Future()
        future.set_result(results)
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Publish the shards. The first process calls this after all processes have written."""
        self.publish(dict(result.storage_data for shards in results for result in shards))

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return True


def write_shard(path: Path, parts: dict[MetadataIndex, Any]) -> str:
    """Write parts of tensors to one safetensors file, sync it to the disk, and return its sha256.

    The header says where each part begins in its tensor, in the form that HuggingFaceStorageReader expects.
    """
    header: dict[str, Any] = {}
    offsets: dict[str, Any] = {}
    tensors: list[Tensor] = []
    end = 0
    for index, value in parts.items():
        tensor = value.detach().cpu().contiguous()
        begin, end = end, end + tensor.nbytes
        name = index.fqn
        assert name not in header, f"two parts of {name} on one process"
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
        offsets[name] = {"saved_offsets": list(index.offset or [0] * tensor.dim())}
        tensors.append(tensor)
    header["__metadata__"] = {"format": "pt", "DCP_VERSION": "1.0", "DCP_SHARDING_INFO": json.dumps(offsets)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the data are aligned
    digest = hashlib.sha256()
    with path.open("wb", buffering=0) as stream:
        for data in (memoryview(len(text).to_bytes(8, "little") + text), *map(_bytes, tensors)):
            digest.update(data)
            unwritten = data
            while unwritten:  # one call writes 2 GiB at most
                unwritten = unwritten[stream.write(unwritten) :]
        os.fsync(stream.fileno())
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.view(-1).view(torch.uint8).numpy().data
