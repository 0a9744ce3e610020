"""The figure of plans: one bar a plan for the time of a step and one for the memory of a device, stacked by part."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from eval.report.plots.style import INK, MUTED, PALETTE, STYLE
from pipeline.plan.plan import TrainingPlan
from pipeline.plan.search import MEMORY_PARTS
from pipeline.plan.table import words

_COLOURS = PALETTE[:-1]
_HATCHES = ("", "////", "....")
# From left to right. The first parts have plain colours, the later ones are hatched.
_TIMES = (
    *("projections", "attention", "dense", "experts", "gate", "logits"),
    *("dispatch", "optimizer", "all_to_all", "all_reduce", "all_gather", "embedding"),
    *("reduce_scatter", "reduce", "broadcast"),
)
_SMALL = 0.004  # of the longest bar: parts that are smaller in every bar are left out of the legend


@dataclass(frozen=True, kw_only=True)
class Bar:
    """The bars of one plan.

    seconds: seconds of a step, by part.
    memory: bytes of a device, by part.
    available: bytes that the device has.
    """

    label: str
    seconds: Mapping[str, float]
    memory: Mapping[str, float]
    available: float

    @classmethod
    def of(cls, label: str, plan: TrainingPlan) -> "Bar":
        memory = {part: getattr(plan.memory, part) for part in MEMORY_PARTS}
        return cls(label=label, seconds=plan.step.parts, memory=memory, available=plan.memory.available)


def plot(bars: Sequence[Bar], title: str) -> Figure:
    """Draw the bars. A bar of memory that crosses its line does not fit."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11.5, 2.3 + 0.42 * len(bars)), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        _stack(left, [bar.seconds for bar in bars], _TIMES)
        _stack(right, [{part: size / 2**30 for part, size in bar.memory.items()} for bar in bars], MEMORY_PARTS)
        right.set_xlim(0, max(right.get_xlim()[1], 1.06 * max(bar.available / 2**30 for bar in bars)))
        for place, bar in enumerate(bars):
            right.plot([bar.available / 2**30] * 2, [place - 0.45, place + 0.45], color=INK, linewidth=1.6)
        top = (bars[0].available / 2**30, -0.45)
        right.annotate("available", top, (0, 3), textcoords="offset points", ha="center", color=MUTED, fontsize=9)
        left.set_yticks(range(len(bars)), [bar.label for bar in bars])
        left.set_ylim(len(bars) - 0.4, -0.85)
        left.set_xlabel("seconds")
        right.set_xlabel("GiB")
        left.set_title("Time of a step")
        right.set_title("Memory of a device")
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower left", ncols=4)
        figure.legend(*right.get_legend_handles_labels(), loc="outside lower right", ncols=3)
        figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return figure


def _stack(axes: Axes, bars: Sequence[Mapping[str, float]], parts: Sequence[str]) -> None:
    """Draw stacked bars, in which a part has the same look in every figure."""
    longest = max(sum(bar.values()) for bar in bars)
    places, left = np.arange(len(bars)), np.zeros(len(bars))
    for number, part in enumerate(parts):
        sizes = np.array([bar.get(part, 0.0) for bar in bars])
        if sizes.max() > _SMALL * longest:
            look = {"color": _COLOURS[number % len(_COLOURS)], "hatch": _HATCHES[number // len(_COLOURS)]}
            look |= {"edgecolor": "#ffffff", "label": words(part)}
        else:
            look = {"color": MUTED}
        axes.barh(places, sizes, left=left, height=0.68, linewidth=0, **look)  # type: ignore[arg-type]
        left += sizes
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, float(left.max()) * 1.06)
