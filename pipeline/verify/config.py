"""What `make verify` compares, and how far apart it may be; free of torch so that it loads fast."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import yaml

from pipeline.model.config import ModelConfig, MoEConfig
from pipeline.schema import build

Precision = Literal["float64", "fp32", "bf16"]
Optimizer = Literal["adamw", "adafactor"]

GATE_FILES = Path(__file__).resolve().parents[2] / "configs" / "gate"
GATES = sorted(path.stem for path in GATE_FILES.glob("*.yaml"))
MAIN_GATE = "top2"  # compared on every topology, the others on OTHER_GATES' alone
OTHER_GATES = {(2, 2): 2, (4, 2): 1}  # (world, ep): ZeRO stage
NUM_EXPERTS = 8
FULL = 0.6  # of a recipe's capacity: batches have padding, which takes no slot


@dataclass(frozen=True, kw_only=True)
class VerifyConfig:
    """worlds: numbers of processes, each with every expert-parallel size that divides it.

    groups: numbers of groups per step (global batches), of which those that a world divides are run there: a world of N
    accumulates groups / N micro-batches. The first is run in every precision, the others in float64, which proves.
    gates: of configs/gate; bf16 is run with top2 alone. steps: of each run. timeout: seconds after which a collective
    that hears nothing fails.
    """

    worlds: list[int] = field(default_factory=lambda: [1, 2, 4])
    groups: list[int] = field(default_factory=lambda: [4, 16])
    zero_stages: list[int] = field(default_factory=lambda: [1, 2])
    precisions: list[Precision] = field(default_factory=lambda: ["float64", "fp32", "bf16"])
    gates: list[str] = field(default_factory=lambda: [MAIN_GATE, *(g for g in GATES if g != MAIN_GATE)])
    optimizer: Optimizer = "adamw"
    steps: int = 20
    timeout: int = 120

    def __post_init__(self) -> None:
        for name in ("worlds", "groups", "zero_stages", "precisions", "gates"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty; give at least one, or leave it out")
        for name in ("worlds", "groups"):
            if min(getattr(self, name)) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be positive")
        for name in ("steps", "timeout"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        for zero_stage in self.zero_stages:
            if zero_stage not in (1, 2):
                raise ValueError(f"zero_stages={self.zero_stages}: there are 1 and 2")
        for gate in self.gates:
            if gate not in GATES:
                raise ValueError(f"gates: {gate} does not exist; there are {', '.join(GATES)}")
        for world in self.worlds:
            if not any(groups % world == 0 for groups in self.groups):
                raise ValueError(f"worlds: {world} processes divide none of groups={self.groups}; add {world}")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One run. replayed: with the routing of the reference."""

    world: int
    ep: int
    zero_stage: int
    groups: int
    precision: Precision
    gate: str
    replayed: bool = False

    @property
    def accumulation(self) -> int:
        """Micro-batches of a process and step."""
        return self.groups // self.world

    @property
    def name(self) -> str:
        """Of its file, and for people."""
        replayed = "-replayed" if self.replayed else ""
        return f"world{self.world}-ep{self.ep}-zero{self.zero_stage}-{self.reference}{replayed}"

    @property
    def reference(self) -> str:
        """Name of the run of plain torch with which it is compared."""
        return f"groups{self.groups}-{self.precision}-{self.gate}"


@dataclass(frozen=True, kw_only=True)
class VerifyJob:
    """Runs of one world, for its processes. out: directory for their outcomes, where the references are too."""

    cases: list[Case]
    steps: int
    optimizer: Optimizer
    timeout: int
    out: str


def cases_of(config: VerifyConfig, world: int) -> list[Case]:
    """All runs with `world` processes."""
    return [
        Case(
            world=world,
            ep=ep,
            zero_stage=zero_stage,
            groups=groups,
            precision=precision,
            gate=gate,
            replayed=replayed,
        )
        for gate in config.gates
        for ep in range(1, world + 1)
        if world % ep == 0 and NUM_EXPERTS % ep == 0
        for zero_stage in config.zero_stages
        if gate == MAIN_GATE or OTHER_GATES.get((world, ep)) == zero_stage
        for groups in config.groups
        if groups % world == 0
        for precision in config.precisions
        if precision == "float64" or groups == config.groups[0]
        if gate == MAIN_GATE or (precision != "bf16" and groups == config.groups[0])
        for replayed in ((False, True) if precision == "fp32" else (False,))
    ]


def model_of(gate: str) -> ModelConfig:
    """A small model with the named gate; dropout, random routing, every loss and every regulariser are on, and capacity
    is so small that experts are full in most groups."""
    values = yaml.safe_load((GATE_FILES / f"{gate}.yaml").read_text(encoding="utf-8"))
    for settings in (values["gate"], values["encoder_gate"] or {}):
        if settings.get("kind") in ("top1", "top2"):
            settings["capacity_factor"] *= FULL
    extra = {"num_experts": NUM_EXPERTS, "expert_dim": 32, "z_weight": 0.001, "output_masking": 0.1}
    moe = build(MoEConfig, {**extra, "conditional": {"drop": 0.1}, **values})
    return ModelConfig(dim=32, ffn_dim=64, heads=2, encoder_layers=2, decoder_layers=2, dropout=0.1, moe=moe)
