"""The spread of a recipe over devices: the default choice, and the legal ones. This module does not load torch."""

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
DEFAULT, CUT = "gshard", "model"  # the layouts without and with a model axis
PRESETS: Mapping[str, Table] = {DEFAULT: GSHARD, CUT: {**GSHARD, "H": ("model",), "N": ("model",), "V": ("model",)}}


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A setup in the words of the command line. name: the name of the layout's table."""

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
    """Return the largest number that divides experts and processes, or 1 if the layout cuts no experts."""
    experts = workload.model.moe.num_experts
    return math.gcd(experts, processes) if experts and "expert" in table.get("E", ()) else 1


def check(workload: Workload, spread: Spread) -> None:
    """Raise ValueError with the nearest legal number if the devices do not divide.

    `pipeline.parallel.legality` checks the sizes of the model.
    """
    devices, ep, mp = spread.devices, spread.ep, spread.mp
    if devices % mp:
        raise ValueError(f"mp={mp} does not divide devices={devices}; choose mp={nearest(mp, divisors(devices))}")
    if devices // mp % ep:
        left = f"devices={devices}" + (f" / mp={mp}" if mp > 1 else "")
        raise ValueError(f"ep={ep} does not divide {left}; choose ep={nearest(ep, divisors(devices // mp))}")
    layout = spread.layout
    groups, parts = workload.groups_per_step, layout.parts(layout.batch_axes)
    if groups % parts:
        legal = [divisor * devices // parts for divisor in divisors(groups)]
        among = f"the {parts} of devices={devices} that share them out" if parts != devices else f"devices={devices}"
        raise ValueError(
            f"batch.groups_per_step={groups} is not divisible by {among}; choose devices={nearest(devices, legal)}"
        )


def is_legal(workload: Workload, spread: Spread) -> bool:
    """Return whether the layout may cut every size that it cuts. The numbers of processes must divide already."""
    model, layout, adapters = workload.model, spread.layout, workload.adapters
    if (model.biases or (adapters and adapters.dropout)) and (layout.axis("H") or layout.axis("N")):
        return False  # as `check_sizes` and `check_components` say
    sizes = {"G": [workload.groups_per_step], "N": [model.heads], "H": [model.ffn_dim], "E": list[int]()}
    sizes["V"] = [workload.source_vocabulary, workload.target_vocabulary]
    if model.moe.num_experts:
        sizes["E"].append(model.moe.num_experts)
        sizes["H"].append(model.moe.expert_dim)
    return all(size % layout.parts(axes) == 0 for letter, axes in spread.table.items() for size in sizes[letter])


@cache
def divisors(number: int) -> list[int]:
    """Return all divisors of a number, smallest first."""
    small = [divisor for divisor in range(1, math.isqrt(number) + 1) if number % divisor == 0]
    return sorted({*small, *(number // divisor for divisor in small)})


def nearest(value: int, legal: Iterable[int]) -> str:
    """Return the nearest legal numbers below and above, as words for an error message."""
    numbers = sorted(legal)
    below, above = [n for n in numbers if n < value], [n for n in numbers if n > value]
    return " or ".join(map(str, below[-1:] + above[:1]))
