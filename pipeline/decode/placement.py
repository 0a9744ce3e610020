"""Where a model's experts are while it translates: all of them in every process, or cut over the processes of a group.

Whole models need no collective, so a process never waits for another. They are cut where the memory is too small.
"""

import logging
import os
from dataclasses import dataclass
from datetime import timedelta

import psutil
import torch

from pipeline.decode.config import DecodeConfig
from pipeline.decode.peers import ExpertPeers
from pipeline.decode.search import max_length
from pipeline.jobs.device import Place
from pipeline.jobs.process import StopRequest
from pipeline.jobs.rendezvous import World, connect
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.model.transformer import Transformer
from pipeline.parallel.layout import Layout
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.partition import expert_parameters

logger = logging.getLogger(__name__)

SHORTEST = 3  # tokens of a source: tag, one piece and end
ITEM_BYTES = {"fp32": 4, "bf16": 2, "fp64": 8}


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Bytes of one process. dense, experts: of the weights, all experts counted. batch: at most, of keys, values and
    scores of one batch."""

    dense: int
    experts: int
    batch: int

    @classmethod
    def of(cls, outline: Transformer, config: DecodeConfig, *, longest: int = 0) -> "Demand":
        """outline: the model, whole, of any device. longest: tokens of the longest source, where it is known."""
        cut = expert_parameters(outline)
        size = ITEM_BYTES[config.precision]
        weights = {name: parameter.numel() * max(4, size) for name, parameter in outline.named_parameters()}
        copies = 1 if config.average == 1 else 2  # a mean is taken of what is there and what is read
        experts = sum(bytes_ for name, bytes_ in weights.items() if name in cut)
        return cls(
            dense=(sum(weights.values()) - experts) * copies,
            experts=experts * copies,
            batch=_batch_bytes(outline, config, longest, size),
        )

    @property
    def whole(self) -> int:
        return self.dense + self.experts + self.batch


def _batch_bytes(outline: Transformer, config: DecodeConfig, longest: int, size: int) -> int:
    """Of the largest batches there can be: of the shortest sentences, or of one that is longer than a batch."""
    model = outline.config
    rows = max(config.batch_tokens // SHORTEST, config.hypotheses)
    target = max(
        config.batch_tokens // SHORTEST * max_length(SHORTEST, config), config.hypotheses * max_length(longest, config)
    )
    source = max(config.batch_tokens // config.hypotheses, longest)
    keys_values = 2 * model.decoder_layers * model.heads * model.key_dim * (target + source)
    logits = 2 * rows * len(outline.target_embedding_VM)
    return keys_values * size + logits * max(4, size)


def join_peers(
    outline: Transformer,
    config: DecodeConfig,
    runtime: RuntimeConfig,
    place: Place,
    *,
    longest: int = 0,
    stop: StopRequest,
    title: str,
) -> ExpertPeers | None:
    """Those that this process decodes with, or None where it holds the whole model and decodes alone.

    outline: the whole model without its weights. A collective of the job's processes where there is a choice.
    """
    if runtime.decode_experts == "replicated" or runtime.ep == 1 or not outline.moe_layers():
        return None
    if runtime.decode_experts == "auto" and outline.config.moe.num_experts % runtime.ep:
        return None  # a layout that cuts no experts may have trained them on any number of processes
    address = os.environ.get("BABELSHARD_RENDEZVOUS", "env://")
    world = World.meet(init_method=address, rank=place.rank, size=place.world, timeout=runtime.timeout)
    demand = Demand.of(outline, config, longest=longest)
    if not to_be_cut(demand, runtime, place, world):
        return None
    stop.watch(world, limit=runtime.heartbeat)
    connect(world, device=place.device, timeout=runtime.timeout)
    return ExpertPeers(
        Mesh.build(Layout.gshard(runtime.processes, runtime.ep), place.device), stop=lambda: bool(stop), title=title
    )


def to_be_cut(demand: Demand, runtime: RuntimeConfig, place: Place, world: World) -> bool:
    """All processes look at their memory before any loads weights, and decide alike."""
    processes = 1 if place.device.type == "cuda" else place.on_host  # of this memory
    free = free_bytes(place.device)
    fits = processes * demand.whole <= free
    cut = runtime.decode_experts == "sharded" or not _all_say(fits, world, timeout=runtime.timeout)
    each = demand.dense + demand.batch + demand.experts // (runtime.ep if cut else 1)
    logger.info(
        "experts while decoding: %s; %d x %s of weights and at most %s for a batch = %s, of %s free%s",
        f"cut over {runtime.ep} processes" if cut else "all in every process",
        processes,
        _gb(each - demand.batch),
        _gb(demand.batch),
        _gb(processes * each),
        _gb(free),
        f" (uncut {_gb(processes * demand.whole)})" if cut else "",
    )
    return cut


def free_bytes(device: torch.device) -> int:
    """Memory that nothing uses, of a CUDA device or of the host."""
    free: int = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available
    return free


def _all_say(yes: bool, world: World, *, timeout: int) -> bool:
    """Whether every process says yes. timeout: seconds."""
    said, read = ([f"{what}/{rank}" for rank in range(world.size)] for what in ("fits", "fits read"))
    world.store.set(said[world.rank], "yes" if yes else "no")
    world.store.wait(said, timedelta(seconds=timeout))
    answer = all(word == b"yes" for word in world.store.multi_get(said))
    world.store.set(read[world.rank], "")
    if world.rank == 0:  # whose end may be the store's
        world.store.wait(read, timedelta(seconds=timeout))
    return answer


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.3g} GB"
