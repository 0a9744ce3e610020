"""The figure of the data funnel: what share of each pair's rows every rule removed."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from eval.figure_style import MUTED, PALETTE, STYLE, new_axes
from eval.funnel import PairFunnel, total, used_rules

_OTHERS = "all other rules"
_COLOURS = PALETTE[:-1]  # black would stand out more than a removal deserves
_LEAST_SHARE = 0.01  # of the axis, so that a handful of rows does not look like much


def plot_funnel(funnels: Sequence[PairFunnel], labels: Mapping[str, str]) -> Figure:
    """Bars of the share of rows removed, stacked by rule, a pair each, most rows first; how many were kept beside."""
    if not funnels:
        raise ValueError("funnels=[] has no pair; there is nothing to plot")
    crowded = len(funnels) > 14
    with mpl.rc_context(STYLE):
        figure, axes = new_axes(8.4, 1.9 + (0.235 if crowded else 0.36) * len(funnels))
        places = np.arange(len(funnels))
        left = np.zeros(len(funnels))
        for name, rules, colour, hatch in _series(funnels):
            shares = np.array([sum(funnel.share(rule) for rule in rules) for funnel in funnels])
            look: Any = {"color": colour, "hatch": hatch, "edgecolor": "#ffffff", "linewidth": 0}
            axes.barh(places, shares, left=left, height=0.72, label=name, **look)
            left += shares
        size = 9.5 if crowded else 10.5
        for place, funnel, end in zip(places, funnels, left, strict=True):
            text = f"{funnel.kept:,} of {funnel.read:,} kept"
            axes.annotate(
                text, (end, place), (5, 0), textcoords="offset points", va="center", color=MUTED, fontsize=size
            )
        axes.set_yticks(places, [labels.get(funnel.pair, funnel.pair) for funnel in funnels], fontsize=size)
        axes.set_ylim(len(funnels) - 0.4, -0.6)
        axes.set_xlim(0, max(float(left.max()), _LEAST_SHARE) * 1.42)  # room for what is written beside the longest bar
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g} %"))
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("share of the rows read that was removed")
        axes.set_title("Training rows removed by cleaning")
        handles, names = axes.get_legend_handles_labels()
        if handles:
            figure.legend(handles, names, loc="outside lower center", ncols=min(len(names), 4))
    return figure


def _series(funnels: Sequence[PairFunnel]) -> list[tuple[str, list[str], str, str]]:
    """(name, rules, colour, hatch) from left to right, the rules that removed most first: plain colours, then hatched
    ones, then all other rules together."""
    everything = total(funnels)
    ranked = sorted(used_rules(funnels), key=lambda rule: -everything.removed[rule])
    looks = [(colour, hatch) for hatch in ("", "////") for colour in _COLOURS]
    own = len(looks) if len(ranked) <= len(looks) else len(looks) - 1
    series = [(rule.replace("_", " "), [rule], *look) for rule, look in zip(ranked[:own], looks, strict=False)]
    return [*series, *([(_OTHERS, ranked[own:], MUTED, "")] if ranked[own:] else [])]
