"""The configuration of `make verify`. This module does not import torch, so that it loads fast."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from pipeline.engine.optimizer_kinds import optimizer_kind
from pipeline.model.config import Activation, ModelConfig, MoEConfig, NormKind
from pipeline.model.moe.gates.config import GATES as GATES_BY_KIND
from pipeline.parallel.layout import Layout
from pipeline.schema import build

Precision = Literal["float64", "fp32", "bf16"]

GATE_FILES = Path(__file__).resolve().parents[2] / "configs" / "gate"
LAYOUT_FILES = GATE_FILES.with_name("layout")
GATES = sorted(path.stem for path in GATE_FILES.glob("*.yaml"))
MAIN_GATE = "top2"  # compared on every topology; the other gates on some
# The topologies of other gates and precisions. (layout, world, ep, mp): ZeRO stage
OTHER_GATES = {("gshard", 1, 1, 1): 1, ("gshard", 2, 2, 1): 2, ("gshard", 4, 2, 1): 1}
OTHER_PRECISIONS = {("model", 2, 1, 2): 1, ("model", 4, 2, 2): 2}
NUM_EXPERTS, HEADS = 8, 4
PAIRS = ["de:en", "en:de"]  # of the synthetic batches, for gates that choose by task
FULL = 0.6  # share of a recipe's capacity that makes experts full, because padding takes no slot
SHORT, RESUMED = 6, 2  # steps of other layouts than gshard, and how many of them come after the checkpoint


def _table(name: str) -> Mapping[str, tuple[str, ...]]:
    """Return the axes of each letter in a file of configs/layout."""
    values = yaml.safe_load((LAYOUT_FILES / f"{name}.yaml").read_text(encoding="utf-8"))
    table: dict[str, tuple[str, ...]] = {}
    for parent in values.pop("defaults", []):
        table |= {} if parent == "_self_" else _table(parent)
    return table | {letter: (axes,) if isinstance(axes, str) else tuple(axes or ()) for letter, axes in values.items()}


OF_RECIPES = {path.stem: _table(path.stem) for path in sorted(LAYOUT_FILES.glob("*.yaml"))}
GSHARD, MODEL = OF_RECIPES["gshard"], OF_RECIPES["model"]
LAYOUTS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    **OF_RECIPES,
    # Layouts of no recipe, which the partitioner must support too.
    "hidden": {**GSHARD, "H": ("model",)},  # all processes do attention and vocabulary
    "summed": {**GSHARD, "E": ("model",), "N": ("model",), "V": ("model",)},  # an all-reduce in place of the all-to-all
    "copied": {**MODEL, "G": ("data",)},  # processes that share the experts have the same groups
}


@dataclass(frozen=True, kw_only=True)
class VerifyConfig:
    """The runs to compare.

    worlds: numbers of processes. Each one runs with every mesh of `topologies`.
    layouts: names in `LAYOUTS`.
    groups: numbers of groups per step. N processes that share them accumulate groups / N micro-batches; topologies that
        do not divide a number skip it. The first number runs in every precision, the others in float64 alone.
    zero_stages: 1, 2 or both.
    precisions: float64 is the proof; fp32 and bf16 are shown too.
    gates: names in configs/gate. bf16 runs with top2 alone.
    optimizer: adamw or adafactor.
    activation, norm: of the model.
    steps: of each run; at most `SHORT` under other layouts than gshard.
    resume: continue, in float64, from the checkpoints of every topology of the recipes' layouts on every other one.
    device: cpu or cuda, where each process needs a device of its own. Plain torch runs on the same kind.
    timeout: seconds after which a silent collective fails.
    """

    worlds: list[int] = field(default_factory=lambda: [1, 2, 4])
    layouts: list[str] = field(default_factory=lambda: list(LAYOUTS))
    groups: list[int] = field(default_factory=lambda: [4, 16])
    zero_stages: list[int] = field(default_factory=lambda: [1, 2])
    precisions: list[Precision] = field(default_factory=lambda: ["float64", "fp32", "bf16"])
    gates: list[str] = field(default_factory=lambda: [MAIN_GATE, *(g for g in GATES if g != MAIN_GATE)])
    optimizer: str = "adamw"
    activation: Activation = "relu"
    norm: NormKind = "layer"
    steps: int = 20
    resume: bool = True
    device: Literal["cpu", "cuda"] = "cpu"
    timeout: int = 120

    def __post_init__(self) -> None:
        optimizer_kind(self.optimizer)
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
        for name, choices in (("gates", GATES), ("layouts", list(LAYOUTS))):
            for value in getattr(self, name):
                if value not in choices:
                    raise ValueError(f"{name}: {value} does not exist; there are {', '.join(choices)}")
        for world in self.worlds:
            if "gshard" in self.layouts and not any(groups % world == 0 for groups in self.groups):
                raise ValueError(f"worlds: {world} processes divide none of groups={self.groups}; add {world}")
        if not any(cases_of(self, world) for world in self.worlds):
            raise ValueError(f"worlds={self.worlds}: nothing is run of layouts={self.layouts}; add 4, or gshard")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One run.

    world: number of processes.
    layout: name in `LAYOUTS`.
    ep, mp: sizes of the axes expert and model; the axis data has the other processes. ep is 0 for plain torch.
    groups: number of groups per step.
    gate, activation, norm: of the model.
    replayed: the run uses the routing of the reference.
    """

    world: int
    layout: str = "gshard"
    ep: int
    mp: int = 1
    zero_stage: int
    groups: int
    precision: Precision
    gate: str
    activation: Activation = "relu"
    norm: NormKind = "layer"
    replayed: bool = False

    @property
    def cut(self) -> Layout:
        sizes = {"data": self.world // self.ep // self.mp, "expert": self.ep, "model": self.mp}
        return Layout(table=LAYOUTS[self.layout], sizes=sizes)

    @property
    def mesh(self) -> str:
        """The sizes of the axes data, expert and model."""
        return "x".join(str(size) for size in self.cut.sizes.values())

    @property
    def accumulation(self) -> int:
        """The number of micro-batches of a process in a step."""
        return self.groups // self._sharers

    @property
    def divides(self) -> bool:
        """True if the processes that share the groups of a step have equally many."""
        return self.groups % self._sharers == 0

    @property
    def _sharers(self) -> int:
        return self.cut.parts(self.cut.batch_axes)

    @property
    def name(self) -> str:
        """The name of the outcome's file, which people read too."""
        replayed = "-replayed" if self.replayed else ""
        return f"{self.layout}-{self.mesh}-zero{self.zero_stage}-{self.reference}{replayed}"

    @property
    def model(self) -> ModelConfig:
        return model_of(self.gate, activation=self.activation, norm=self.norm)

    @property
    def reference(self) -> str:
        """The name of the run of plain torch with which this one is compared."""
        return f"groups{self.groups}-{self.precision}-{self.gate}"


@dataclass(frozen=True, kw_only=True)
class Target:
    """A topology that continues from the checkpoints of others."""

    case: Case
    sources: list[Case]

    def name(self, source: Case) -> str:
        """Return the name of the outcome's file."""
        return f"{self.case.name}-from-{source.name}"


@dataclass(frozen=True, kw_only=True)
class VerifyJob:
    """The runs of one world, for its processes.

    saved: names of the cases that save a checkpoint.
    out: directory for checkpoints, outcomes and references.
    """

    cases: list[Case]
    targets: list[Target]
    saved: list[str]
    steps: int
    optimizer: str
    device: str
    timeout: int
    out: str

    @property
    def short(self) -> int:
        """The last step of short runs."""
        return min(self.steps, SHORT)

    @property
    def saved_step(self) -> int:
        """The step after which checkpoints are saved."""
        return self.short - RESUMED

    def steps_of(self, case: Case) -> int:
        return self.steps if case.layout == "gshard" else self.short

    def checkpoint(self, case: Case) -> Path:
        return Path(self.out) / f"{case.name}.checkpoint"


def cases_of(config: VerifyConfig, world: int) -> list[Case]:
    """Return all runs with `world` processes."""
    cases = [
        Case(
            world=world,
            layout=layout,
            ep=ep,
            mp=mp,
            zero_stage=zero_stage,
            groups=groups,
            precision=precision,
            gate=gate,
            activation=config.activation,
            norm=config.norm,
            replayed=replayed,
        )
        for gate in config.gates
        for layout, ep, mp in topologies(config, world)
        for zero_stage in config.zero_stages
        for groups in config.groups
        for precision in config.precisions
        for replayed in ((False, True) if precision == "fp32" else (False,))
    ]
    return [case for case in cases if case.divides and _wanted(case, config)]


def topologies(config: VerifyConfig, world: int) -> list[tuple[str, int, int]]:
    """Return the layout, ep and mp of each topology with `world` processes."""
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
    """Return true if the case shows something that other cases do not."""
    place, first = (case.layout, case.world, case.ep, case.mp), case.groups == config.groups[0]
    proof = case.precision == "float64"
    if case.gate != MAIN_GATE:
        return OTHER_GATES.get(place) == case.zero_stage and case.precision != "bf16" and first
    if case.layout == "gshard":
        return proof or first
    if case.layout == "model":
        return first and (proof or OTHER_PRECISIONS.get(place) == case.zero_stage)
    return first and proof and case.zero_stage == config.zero_stages[0]


def model_of(gate: str, *, activation: Activation = "relu", norm: NormKind = "layer") -> ModelConfig:
    """Return the configuration of a small model with a gate.

    Dropout, random routing, shared experts, every loss and every regulariser are on. The capacity is so small that
    experts are full in most groups.
    """
    values = yaml.safe_load((GATE_FILES / f"{gate}.yaml").read_text(encoding="utf-8"))
    for settings in (values["gate"], values["encoder_gate"] or {}):
        kind = GATES_BY_KIND.get(settings.get("kind", ""))  # `build` refuses a kind that does not exist
        if kind is not None and kind.queues and "capacity_factor" in settings:
            settings["capacity_factor"] *= FULL
    extra: dict[str, float] = {"num_experts": NUM_EXPERTS, "expert_dim": 32, "shared_experts": 2}
    extra |= {"z_weight": 0.001, "output_masking": 0.1}
    moe = build(MoEConfig, {**extra, "conditional": {"drop": 0.1}, **values}).with_pairs(PAIRS)
    sizes: dict[str, Any] = {"dim": 32, "ffn_dim": 64, "heads": HEADS, "encoder_layers": 2, "decoder_layers": 2}
    return ModelConfig(**sizes, dropout=0.1, activation=activation, norm=norm, moe=moe)
