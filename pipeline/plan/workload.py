"""The values that a plan is made of: the workload, its setup, and the device. This module does not load torch."""

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

from pipeline.batch.config import GroupShape
from pipeline.engine.optimizer_kinds import OptimizerKind, optimizer_kind
from pipeline.model.components import ALL
from pipeline.model.config import ModelConfig, Recompute
from pipeline.parallel.layout import Layout

PRECISIONS = ("fp32", "bf16")

# Parts of a step's computation. `attention` is scores and weighted values, `projections` the products around them.
PARTS = ("embedding", "projections", "attention", "dense", "gate", "dispatch", "experts", "logits", "optimizer")
Kind = Literal["all_to_all", "all_reduce", "reduce_scatter", "all_gather", "reduce", "broadcast"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_EFFICIENCIES = (*PARTS, *KINDS, *(f"{part}_{precision}" for part in PARTS for precision in PRECISIONS))


@dataclass(frozen=True, kw_only=True)
class Adapters:
    """Low-rank adapters, as `pipeline.model.lora.LoraConfig` has them, but hashable."""

    rank: int
    targets: tuple[str, ...]
    dropout: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Training of one recipe.

    shape: shape of a group. One group is a micro-batch of a process.
    groups_per_step: groups of all processes together.
    precision: fp32 or bf16.
    optimizer: name in `OPTIMIZERS`.
    max_tokens: the budget in target tokens, 0 for none.
    trainable: the parameters that train, for `is_trainable`.
    adapters: low-rank adapters, None for none.
    rate_factors: factors on the learning rate by component; each has groups of the optimizer of its own.
    """

    recipe: str
    model: ModelConfig
    source_vocabulary: int
    target_vocabulary: int
    shared: bool
    shape: GroupShape
    groups_per_step: int
    precision: str
    optimizer: str
    ema: bool
    max_tokens: int
    trainable: str | tuple[str, ...] = ALL
    adapters: Adapters | None = None
    rate_factors: tuple[tuple[str, float], ...] = ()

    @property
    def optimizer_kind(self) -> OptimizerKind:
        """The facts of the optimizer. Raises ValueError for an unknown name."""
        return optimizer_kind(self.optimizer)

    @property
    def source_tokens(self) -> int:
        """Source tokens of a group, with padding."""
        return self.shape.rows * self.shape.source

    @property
    def target_tokens(self) -> int:
        """Target tokens of a group, with padding."""
        return self.shape.rows * self.shape.target


@dataclass(frozen=True, kw_only=True)
class Setup:
    """The way a workload is spread over devices. It does not affect the result of training."""

    layout: Layout
    zero_stage: int
    recompute: Recompute

    def accumulation(self, workload: Workload) -> int:
        """Return the number of micro-batches of a process in a step."""
        return workload.groups_per_step // self.layout.parts(self.layout.batch_axes)


@dataclass(frozen=True, kw_only=True)
class Device:
    """One device, its memory and its links, as in configs/device/<name>.yaml. Units: FLOP/s, bytes, bytes/s, seconds.

    source: the place that the numbers come from.
    flops: peak of matrix products, by precision.
    memory: memory of one device.
    resident: the part of the memory that is taken before a model exists.
    bandwidth: bandwidth of the memory.
    launch: time to start one small operation.
    node: number of devices in a node.
    link: bandwidth from one device to the others of its node, each way.
    network: bandwidth from one device to other nodes, which is its share of the node's bandwidth.
    latency, network_latency: time of one collective inside a node and between nodes, for each doubling of processes.
    efficiency: share of peak and bandwidth that a part of the work (`PARTS`) reaches, or share of link and network that
        a kind of collective (`KINDS`) reaches. The default is 1. A key such as attention_bf16 is for one precision.
    topology: the network. In a torus (nodes in two dimensions) an all-to-all slows down with the square root of the
        number of nodes.
    price: US dollars for an hour of one device, 0 if it is not for rent.
    float32_attention: attention computes in float32 under bf16 too (`pipeline.model.fused_attention`).
    name: name of the device in tables.
    kind: family of the processor.
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
            names = ", ".join((*PARTS, *KINDS))
            raise ValueError(f"device {self.name}: efficiency.{wrong[0]} does not exist; there are {names}")
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
    """Computation of one kind in one part (`PARTS`) on one process, forward and backward.

    bytes: bytes that move through memory.
    launches: number of operations that are started.
    """

    part: str
    flops: float
    bytes: float
    launches: int


@dataclass(frozen=True, kw_only=True)
class Collective:
    """Collectives of one kind that a process takes part in during a step.

    axes: axes of the mesh that they run over.
    bytes: size of the tensors that a process hands in, all collectives together; for all_gather, of what it receives.
    count: number of collectives.
    """

    part: str
    kind: Kind
    axes: tuple[str, ...]
    bytes: int
    count: int
