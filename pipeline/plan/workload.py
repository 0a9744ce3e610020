"""What a plan is made of: the work, how it is spread, and what does it. Plain values, free of torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pipeline.batch.config import GroupShape
from pipeline.model.config import ModelConfig, Recompute
from pipeline.parallel.layout import Layout


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Training of one recipe. A micro-batch of a process is one group of `shape`; a step has groups_per_step of them.

    max_tokens: the budget in target tokens, 0 for none. precision: fp32 or bf16.
    """

    recipe: str
    model: ModelConfig
    source_vocabulary: int
    target_vocabulary: int
    shared: bool
    shape: GroupShape
    groups_per_step: int
    precision: str
    optimizer: Literal["adamw", "adafactor"]
    ema: bool
    max_tokens: int


@dataclass(frozen=True, kw_only=True)
class Setup:
    """How it is spread: nothing of it changes a result."""

    layout: Layout
    zero_stage: int
    recompute: Recompute

    def accumulation(self, workload: Workload) -> int:
        """Micro-batches of a process and step."""
        return workload.groups_per_step // self.layout.parts(self.layout.batch_axes)


@dataclass(frozen=True, kw_only=True)
class Device:
    """One device, its memory and its links; configs/device/<name>.yaml. Units: FLOP/s, bytes, bytes/s, seconds.

    flops: peak of matmuls by precision. efficiency: share of it that a kind of work reaches (dense, attention, experts,
    logits; 1 where none is given). memory: of one device; resident: of it, taken before there is any model. bandwidth:
    of memory. launch: of one small operation. link: of one device to others of its node, each way; network: to other
    nodes, its share of its node's. node: devices of one node. latency, network_latency: of one collective on each.
    topology: switch, or torus (two dimensions; all-to-all takes the square root of the devices longer). price: of a
    device hour in US dollars, 0 where nobody rents it.
    """

    name: str
    kind: Literal["cpu", "cuda", "tpu"]
    source: str
    flops: Mapping[str, float]
    efficiency: Mapping[str, float]
    memory: float
    resident: float
    bandwidth: float
    launch: float
    node: int
    link: float
    network: float
    latency: float
    network_latency: float
    topology: Literal["switch", "torus"]
    price: float


@dataclass(frozen=True, kw_only=True)
class Work:
    """Computation of one part of one micro-batch on one process, forward and backward. bytes: moved through memory."""

    part: str
    flops: float
    bytes: float
    launches: int


Kind = Literal["all_to_all", "all_reduce", "reduce_scatter", "all_gather", "reduce", "broadcast"]


@dataclass(frozen=True, kw_only=True)
class Collective:
    """`count` collectives of a step and process over the mesh's `axes`. bytes: of all of them together, of the tensor
    that a process hands in (all_gather: that it gets out)."""

    part: str
    kind: Kind
    axes: tuple[str, ...]
    bytes: int
    count: int
