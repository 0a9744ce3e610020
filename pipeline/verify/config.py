"""What `make verify` compares; free of torch so that it loads fast."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import yaml

from pipeline.model.config import ModelConfig, MoEConfig
from pipeline.parallel.layout import Layout
from pipeline.schema import build

Precision = Literal["float64", "fp32", "bf16"]
Optimizer = Literal["adamw", "adafactor"]

GATE_FILES = Path(__file__).resolve().parents[2] / "configs" / "gate"
LAYOUT_FILES = GATE_FILES.with_name("layout")
GATES = sorted(path.stem for path in GATE_FILES.glob("*.yaml"))
MAIN_GATE = "top2"  # compared on every topology, the others on some
# Layout, world, ep, mp: ZeRO stage
OTHER_GATES = {("gshard", 2, 2, 1): 2, ("gshard", 4, 2, 1): 1}
OTHER_PRECISIONS = {("model", 2, 1, 2): 1, ("model", 4, 2, 2): 2}  # of model
NUM_EXPERTS, HEADS = 8, 4
FULL = 0.6  # of a recipe's capacity: batches have padding, which takes no slot
SHORT, RESUMED = 6, 2  # steps of layouts beside gshard, and of these after a checkpoint


def _table(name: str) -> Mapping[str, tuple[str, ...]]:
    """Of configs/layout."""
    values = yaml.safe_load((LAYOUT_FILES / f"{name}.yaml").read_text(encoding="utf-8"))
    table: dict[str, tuple[str, ...]] = {}
    for parent in values.pop("defaults", []):
        table |= {} if parent == "_self_" else _table(parent)
    return table | {letter: (axes,) if isinstance(axes, str) else tuple(axes or ()) for letter, axes in values.items()}


OF_RECIPES = {path.stem: _table(path.stem) for path in sorted(LAYOUT_FILES.glob("*.yaml"))}
GSHARD, MODEL = OF_RECIPES["gshard"], OF_RECIPES["model"]
LAYOUTS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    **OF_RECIPES,
    # and those that no recipe has, which the partitioner must survive
    "hidden": {**GSHARD, "H": ("model",)},  # attention and vocabulary are done by all
    "summed": {**GSHARD, "E": ("model",), "N": ("model",), "V": ("model",)},  # an all-reduce for the all-to-all
    "copied": {**MODEL, "G": ("data",)},  # groups, over the processes that share the experts
}


@dataclass(frozen=True, kw_only=True)
class VerifyConfig:
    """worlds: numbers of processes, each with every mesh that `topologies` knows of it.

    layouts: of `LAYOUTS`. groups: numbers of groups per step (global batches), of which those that a topology divides
    are run there: N processes with groups of their own accumulate groups / N micro-batches. The first is run in every
    precision, the others in float64, which proves. gates: of configs/gate; bf16 is run with top2 alone. steps: of each
    run, `SHORT` of them under layouts beside gshard. resume: whether checkpoints go from every topology of the recipes'
    layouts to every other, in float64. timeout: seconds after which a collective that hears nothing fails.
    """

    worlds: list[int] = field(default_factory=lambda: [1, 2, 4])
    layouts: list[str] = field(default_factory=lambda: list(LAYOUTS))
    groups: list[int] = field(default_factory=lambda: [4, 16])
    zero_stages: list[int] = field(default_factory=lambda: [1, 2])
    precisions: list[Precision] = field(default_factory=lambda: ["float64", "fp32", "bf16"])
    gates: list[str] = field(default_factory=lambda: [MAIN_GATE, *(g for g in GATES if g != MAIN_GATE)])
    optimizer: Optimizer = "adamw"
    steps: int = 20
    resume: bool = True
    timeout: int = 120

    def __post_init__(self) -> None:
        for name in ("worlds", "layouts", "groups", "zero_stages", "precisions", "gates"):
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
        for name, known in (("gates", GATES), ("layouts", list(LAYOUTS))):
            for each in getattr(self, name):
                if each not in known:
                    raise ValueError(f"{name}: {each} does not exist; there are {', '.join(known)}")
        for world in self.worlds:
            if "gshard" in self.layouts and not any(groups % world == 0 for groups in self.groups):
                raise ValueError(f"worlds: {world} processes divide none of groups={self.groups}; add {world}")
        if not any(cases_of(self, world) for world in self.worlds):
            raise ValueError(f"worlds={self.worlds}: nothing is run of layouts={self.layouts}; add 4, or gshard")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One run. layout: of `LAYOUTS`. ep, mp: sizes of the axes expert and model, data takes the rest of the world; ep
    is 0 for plain torch. replayed: with the routing of the reference."""

    world: int
    layout: str = "gshard"
    ep: int
    mp: int = 1
    zero_stage: int
    groups: int
    precision: Precision
    gate: str
    replayed: bool = False

    @property
    def cut(self) -> Layout:
        sizes = {"data": self.world // self.ep // self.mp, "expert": self.ep, "model": self.mp}
        return Layout(table=LAYOUTS[self.layout], sizes=sizes)

    @property
    def mesh(self) -> str:
        """Sizes of data, expert and model."""
        return "x".join(str(size) for size in self.cut.sizes.values())

    @property
    def accumulation(self) -> int:
        """Micro-batches of a process and step."""
        return self.groups // self._sharers

    @property
    def divides(self) -> bool:
        """Whether all processes that have groups of their own have as many."""
        return self.groups % self._sharers == 0

    @property
    def _sharers(self) -> int:
        return self.cut.parts(self.cut.batch_axes)

    @property
    def name(self) -> str:
        """Of its file, and for people."""
        replayed = "-replayed" if self.replayed else ""
        return f"{self.layout}-{self.mesh}-zero{self.zero_stage}-{self.reference}{replayed}"

    @property
    def reference(self) -> str:
        """Name of the run of plain torch with which it is compared."""
        return f"groups{self.groups}-{self.precision}-{self.gate}"


@dataclass(frozen=True, kw_only=True)
class Target:
    """A topology that goes on from the checkpoints of others."""

    case: Case
    sources: list[Case]

    def name(self, source: Case) -> str:
        """Of the outcome's file."""
        return f"{self.case.name}-from-{source.name}"


@dataclass(frozen=True, kw_only=True)
class VerifyJob:
    """Runs of one world, for its processes. saved: names of the cases that leave a checkpoint. out: directory for
    checkpoints and outcomes, where the references are too."""

    cases: list[Case]
    targets: list[Target]
    saved: list[str]
    steps: int
    optimizer: Optimizer
    timeout: int
    out: str

    @property
    def short(self) -> int:
        """The last step of short runs."""
        return min(self.steps, SHORT)

    @property
    def saved_step(self) -> int:
        """After which checkpoints are saved."""
        return self.short - RESUMED

    def steps_of(self, case: Case) -> int:
        return self.steps if case.layout == "gshard" else self.short

    def checkpoint(self, case: Case) -> Path:
        return Path(self.out) / f"{case.name}.checkpoint"


def cases_of(config: VerifyConfig, world: int) -> list[Case]:
    """All runs with `world` processes."""
    found = [
        Case(
            world=world,
            layout=layout,
            ep=ep,
            mp=mp,
            zero_stage=zero_stage,
            groups=groups,
            precision=precision,
            gate=gate,
            replayed=replayed,
        )
        for gate in config.gates
        for layout, ep, mp in topologies(config, world)
        for zero_stage in config.zero_stages
        for groups in config.groups
        for precision in config.precisions
        for replayed in ((False, True) if precision == "fp32" else (False,))
    ]
    return [case for case in found if case.divides and _wanted(case, config)]


def topologies(config: VerifyConfig, world: int) -> list[tuple[str, int, int]]:
    """Layout, ep and mp."""
    return [
        (layout, ep, mp)
        for layout in config.layouts
        for ep in range(1, world + 1)
        for mp in range(1, world // ep + 1)
        if world % (ep * mp) == 0 and NUM_EXPERTS % ep == 0 and HEADS % mp == 0
        if (mp > 1) == (layout != "gshard")
        if layout not in ("hidden", "copied") or ep > 1
        if layout != "summed" or ep == 1
    ]


def _wanted(case: Case, config: VerifyConfig) -> bool:
    """Whether it shows something that the others do not."""
    place, first = (case.layout, case.world, case.ep, case.mp), case.groups == config.groups[0]
    proof = case.precision == "float64"
    if case.gate != MAIN_GATE:
        return OTHER_GATES.get(place) == case.zero_stage and case.precision != "bf16" and first
    if case.layout == "gshard":
        return proof or first
    if case.layout == "model":
        return first and (proof or OTHER_PRECISIONS.get(place) == case.zero_stage)
    return first and proof and case.zero_stage == config.zero_stages[0]


def model_of(gate: str) -> ModelConfig:
    """A small model with the named gate; dropout, random routing, every loss and every regulariser are on, and capacity
    is so small that experts are full in most groups."""
    values = yaml.safe_load((GATE_FILES / f"{gate}.yaml").read_text(encoding="utf-8"))
    for settings in (values["gate"], values["encoder_gate"] or {}):
        if settings.get("kind") in ("top1", "top2"):
            settings["capacity_factor"] *= FULL
    extra = {"num_experts": NUM_EXPERTS, "expert_dim": 32, "z_weight": 0.001, "output_masking": 0.1}
    moe = build(MoEConfig, {**extra, "conditional": {"drop": 0.1}, **values})
    return ModelConfig(dim=32, ffn_dim=64, heads=HEADS, encoder_layers=2, decoder_layers=2, dropout=0.1, moe=moe)
