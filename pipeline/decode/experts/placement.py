"""Placement of a model's experts while it translates: all in every process, or cut over the processes of a group.

Processes with whole models need no collective, so none waits for another. Experts are cut if memory is too small.
"""

import logging
import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

import psutil
import torch

from pipeline.decode.config import DecodeConfig
from pipeline.decode.experts.peers import ExpertPeers
from pipeline.decode.quantization import is_rounded
from pipeline.decode.search.search import max_length
from pipeline.engine.checkpoint.weights import by_layer
from pipeline.jobs.device import Place
from pipeline.jobs.rendezvous import World, connect
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.model.transformer import Transformer
from pipeline.parallel.layout import Layout
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.partition import expert_parameters

logger = logging.getLogger(__name__)

SHORTEST = 3  # tokens of a source: tag, one piece and end
NUMBER_BYTES = {"fp32": 4, "bf16": 2, "fp64": 8, "int8": 4}  # of keys and values


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Bytes that one process needs.

    dense: weights other than those of experts.
    experts: weights of all experts.
    batch: keys, values and logits of the largest batch.
    """

    dense: int
    experts: int
    batch: int

    @classmethod
    def of(cls, outline: Transformer, config: DecodeConfig, *, longest: int = 0) -> "Demand":
        """Count the bytes of a model. outline: the whole model, any device. longest: tokens of the longest source."""
        expert_names = expert_parameters(outline)
        sizes = {name: p.numel() * _weight_bytes(name, config) for name, p in outline.named_parameters()}
        read = _largest_layer(outline, config)
        experts = sum(num_bytes for name, num_bytes in sizes.items() if name in expert_names)
        read_experts = sum(num_bytes for name, num_bytes in read.items() if name in expert_names)
        table = outline.target_embedding_VM.numel() if config.precision == "int8" else 0  # kept in float32 as well
        return cls(
            dense=sum(sizes.values()) - experts + sum(read.values()) - read_experts + table,
            experts=experts + read_experts,
            batch=_batch_bytes(outline, config, longest, NUMBER_BYTES[config.precision]),
        )

    @property
    def whole(self) -> int:
        return self.dense + self.experts + self.batch


def _weight_bytes(name: str, config: DecodeConfig) -> int:
    """Return the bytes of a number of a weight. Weights are read in float32, and then converted layer by layer."""
    return 1 if config.precision == "int8" and is_rounded(name) else max(4, NUMBER_BYTES[config.precision])


def _largest_layer(outline: Transformer, config: DecodeConfig) -> dict[str, int]:
    """Return the bytes that reading takes for a while, by parameter, for the layer where they are the most.

    Weights of 8 bits are read in float32, and averaging holds the sum so far and the checkpoint that is read.
    """
    copies = (config.precision == "int8") + (config.average > 1)
    layers = [
        {name: outline.get_parameter(name).numel() * 4 * copies for name in names} for _, names in by_layer(outline)
    ]
    return max(layers, key=lambda layer: sum(layer.values()))


def _batch_bytes(outline: Transformer, config: DecodeConfig, longest: int, size: int) -> int:
    """Return the most bytes of a batch. It has many of the shortest sentences, or one that is longer than a batch."""
    model = outline.config
    rows = max(config.batch_tokens // SHORTEST, config.hypotheses)
    target = max(
        config.batch_tokens // SHORTEST * max_length(SHORTEST, config), config.hypotheses * max_length(longest, config)
    )
    source = max(config.batch_tokens // config.hypotheses, longest)
    keys_values = 2 * model.decoder_layers * model.heads * model.key_dim * (target + source)
    logits = 2 * rows * len(outline.target_embedding_VM)
    return keys_values * size + logits * max(4, size)


class Stop(Protocol):
    """A request to stop that a process may get, such as `StopRequest`, which also watches over its peers."""

    def __bool__(self) -> bool: ...

    def watch(self, world: World, *, limit: int) -> None:
        """End this process when another one is silent for so many seconds."""


def join_peers(
    outline: Transformer,
    config: DecodeConfig,
    runtime: RuntimeConfig,
    place: Place,
    *,
    longest: int = 0,
    stop: Stop,
    title: str,
) -> ExpertPeers | None:
    """Return the processes that this one shares experts with, or None if it holds the whole model and decodes alone.

    It is a collective of the job's processes, unless the settings or the model leave no choice.
    outline: the whole model without its weights.
    longest: tokens of the longest source, if it is known.
    """
    if runtime.decode_experts == "replicated" or runtime.ep == 1 or not outline.moe_layers():
        return None
    if runtime.decode_experts == "auto" and outline.config.moe.num_experts % runtime.ep:
        return None  # training may have used a layout that cuts no experts, with any number of processes
    address = os.environ.get("BABELSHARD_RENDEZVOUS", "env://")
    world = World.meet(init_method=address, rank=place.rank, size=place.world, timeout=runtime.timeout)
    demand = Demand.of(outline, config, longest=longest)
    if not must_cut(demand, runtime, place, world):
        return None
    stop.watch(world, limit=runtime.heartbeat)
    connect(world, device=place.device, timeout=runtime.timeout)
    return ExpertPeers(
        Mesh.build(Layout.gshard(runtime.processes, runtime.ep), place.device), stop=lambda: bool(stop), title=title
    )


def must_cut(demand: Demand, runtime: RuntimeConfig, place: Place, world: World) -> bool:
    """Tell if the experts must be cut. All processes compare their free memory first, so that all decide alike."""
    processes = 1 if place.device.type == "cuda" else place.on_host  # that use this memory
    free = free_bytes(place.device)
    fits = processes * demand.whole <= free
    cut = runtime.decode_experts == "sharded" or not _all_agree(fits, world, timeout=runtime.timeout)
    needed = demand.dense + demand.batch + demand.experts // (runtime.ep if cut else 1)
    logger.info(
        "experts while decoding: %s; %d x %s of weights and at most %s for a batch = %s, of %s free%s",
        f"cut over {runtime.ep} processes" if cut else "all in every process",
        processes,
        _gb(needed - demand.batch),
        _gb(demand.batch),
        _gb(processes * needed),
        _gb(free),
        f" (uncut {_gb(processes * demand.whole)})" if cut else "",
    )
    return cut


def free_bytes(device: torch.device) -> int:
    """Return the unused bytes of memory, of a CUDA device or of the host."""
    free: int = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available
    return free


def _all_agree(vote: bool, world: World, *, timeout: int) -> bool:
    """Tell if the vote of every process is yes. timeout: seconds."""
    votes, receipts = ([f"{name}/{rank}" for rank in range(world.size)] for name in ("fits", "fits read"))
    world.store.set(votes[world.rank], "yes" if vote else "no")
    world.store.wait(votes, timedelta(seconds=timeout))
    agreed = all(answer == b"yes" for answer in world.store.multi_get(votes))
    world.store.set(receipts[world.rank], "")
    if world.rank == 0:  # the store may be in this process, so it must not end before all have read
        world.store.wait(receipts, timedelta(seconds=timeout))
    return agreed


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.3g} GB"
