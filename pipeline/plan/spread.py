"""How a recipe is spread over devices: what is chosen unless told otherwise, and what is legal. Free of torch."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from pipeline.model.config import Recompute
from pipeline.parallel.layout import GSHARD, Layout
from pipeline.plan.workload import Setup, Workload

Table = Mapping[str, tuple[str, ...]]
ZeroStage = Literal[1, 2]
RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "layers", "all")  # the last takes the most time
STAGES: tuple[ZeroStage, ...] = (1, 2)
DEFAULT, CUT = "gshard", "model"  # layouts that are chosen without and with a model axis
PRESETS: Mapping[str, Table] = {DEFAULT: GSHARD, CUT: {**GSHARD, "H": ("model",), "N": ("model",), "V": ("model",)}}


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A setup in the words of the command line. name: of the layout's table."""

    name: str
    table: Table
    devices: int
    ep: int
    mp: int
    zero_stage: ZeroStage
    recompute: Recompute

    @property
    def layout(self) -> Layout:
        sizes = {"data": self.devices // (self.ep * self.mp), "expert": self.ep, "model": self.mp}
        return Layout(table=self.table, sizes=sizes)

    @property
    def setup(self) -> Setup:
        return Setup(layout=self.layout, zero_stage=self.zero_stage, recompute=self.recompute)


def default_ep(workload: Workload, table: Table, processes: int) -> int:
    """The largest number of parts that experts and processes fall into; 1 where the layout cuts no experts."""
    experts = workload.model.moe.num_experts
    return math.gcd(experts, processes) if experts and "expert" in table.get("E", ()) else 1


def check(workload: Workload, spread: Spread) -> None:
    """Raise ValueError with the nearest legal number where the devices do not divide; sizes of the model are checked by
    `pipeline.parallel.legality`."""
    devices, ep, mp = spread.devices, spread.ep, spread.mp
    if devices % mp:
        raise ValueError(f"mp={mp} does not divide devices={devices}; choose mp={nearest(mp, divisors(devices))}")
    if devices // mp % ep:
        left = f"devices={devices}" + (f" / mp={mp}" if mp > 1 else "")
        raise ValueError(f"ep={ep} does not divide {left}; choose ep={nearest(ep, divisors(devices // mp))}")
    layout = spread.layout
    groups, parts = workload.groups_per_step, layout.parts(layout.batch_axes)
    if groups % parts:
        legal = [each * devices // parts for each in divisors(groups)]
        among = f"the {parts} of devices={devices} that share them out" if parts != devices else f"devices={devices}"
        raise ValueError(
            f"batch.groups_per_step={groups} is not divisible by {among}; choose devices={nearest(devices, legal)}"
        )


def is_legal(workload: Workload, spread: Spread) -> bool:
    """Whether all that the layout cuts divides; the numbers of processes must."""
    model, layout = workload.model, spread.layout
    sizes = {"G": [workload.groups_per_step], "N": [model.heads], "H": [model.ffn_dim], "E": list[int]()}
    sizes["V"] = [workload.source_vocabulary, workload.target_vocabulary]
    if model.moe.num_experts:
        sizes["E"].append(model.moe.num_experts)
        sizes["H"].append(model.moe.expert_dim)
    return all(size % layout.parts(axes) == 0 for letter, axes in spread.table.items() for size in sizes[letter])


@cache
def divisors(number: int) -> list[int]:
    small = [each for each in range(1, math.isqrt(number) + 1) if number % each == 0]
    return sorted({*small, *(number // each for each in small)})


def nearest(value: int, legal: Iterable[int]) -> str:
    """The next number of those below and above."""
    found = sorted(legal)
    beside = [*[each for each in found if each < value][-1:], *[each for each in found if each > value][:1]]
    return " or ".join(map(str, beside))
