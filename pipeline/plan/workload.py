"""What a plan is made of: the work, how it is spread, and what does it. Plain values, free of torch."""

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

from pipeline.batch.config import GroupShape
from pipeline.model.config import ModelConfig, Recompute
from pipeline.parallel.layout import Layout

PRECISIONS = ("fp32", "bf16")

# Parts of a step's computation. attention: scores and what is weighted by them; projections: to heads and back.
PARTS = ("embedding", "projections", "attention", "dense", "gate", "dispatch", "experts", "logits", "optimizer")
Kind = Literal["all_to_all", "all_reduce", "reduce_scatter", "all_gather", "reduce", "broadcast"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_EFFICIENCIES = (*PARTS, *KINDS, *(f"{part}_{precision}" for part in PARTS for precision in PRECISIONS))


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

    flops: peak of matmuls by precision. memory: of one device; resident: of it, taken before there is any model.
    bandwidth: of memory. launch: of one small operation. link: of one device to others of its node, each way; network:
    to other nodes, its share of its node's. node: devices of one node. latency, network_latency: of one collective on
    each, for every doubling of its processes. efficiency: share that a part of the work (`PARTS`) reaches of peak and
    bandwidth, or a kind of collective (`KINDS`) of link and network; 1 where none is given. attention_bf16: of a part
    in that precision alone. topology: of the network: switch, or torus (two dimensions of nodes; all-to-all takes
    longer with the square root of their number). price: of a device hour in US dollars, 0 where nobody rents it.
    float32_attention: attention computes in float32 under bf16 too, as on AMD's processors with AVX-512
    (`pipeline.model.fused_attention`).
    """

    name: str
    kind: Literal["cpu", "cuda", "tpu"]
    source: str
    flops: dict[str, float]
    memory: float
    resident: float
    bandwidth: float
    launch: float
    node: int
    link: float
    network: float
    latency: float
    network_latency: float
    efficiency: dict[str, float] = field(default_factory=dict)
    topology: Literal["switch", "torus"] = "switch"
    price: float
    float32_attention: bool = False

    def __post_init__(self) -> None:
        if set(self.flops) != set(PRECISIONS):
            raise ValueError(f"device {self.name}: flops has {', '.join(self.flops)}; give {' and '.join(PRECISIONS)}")
        if wrong := [key for key in self.efficiency if key not in _EFFICIENCIES]:
            known = ", ".join((*PARTS, *KINDS))
            raise ValueError(f"device {self.name}: efficiency.{wrong[0]} does not exist; there are {known}")
        positive = {name: getattr(self, name) for name in ("memory", "bandwidth", "node", "link", "network")}
        for name, values in (("flops", self.flops), ("efficiency", self.efficiency)):
            positive |= {f"{name}.{key}": value for key, value in values.items()}
        for name, value in positive.items():
            if not 0 < value < math.inf:
                raise ValueError(f"device {self.name}: {name}={value} must be positive and finite")
        for name in ("resident", "launch", "latency", "network_latency", "price"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"device {self.name}: {name}={getattr(self, name)} must be finite and not negative")


@dataclass(frozen=True, kw_only=True)
class Work:
    """Computation of one kind in one part (`PARTS`) on one process, forward and backward. bytes: moved through memory.
    launches: of operations."""

    part: str
    flops: float
    bytes: float
    launches: int


@dataclass(frozen=True, kw_only=True)
class Collective:
    """`count` collectives of a step and process over the mesh's `axes`. bytes: of all of them together, of the tensor
    that a process hands in (all_gather: that it gets out)."""

    part: str
    kind: Kind
    axes: tuple[str, ...]
    bytes: int
    count: int
