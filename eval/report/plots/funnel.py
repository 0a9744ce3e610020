"""The figure of the data funnel: the share of each pair's rows that every rule removed."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from eval.records.funnel import PairFunnel, total, used_rules
from eval.report.plots.style import MUTED, PALETTE, STYLE, new_axes

_OTHERS = "all other rules"
_COLOURS = PALETTE[:-1]  # without black, which stands out too much
_LEAST_SHARE = 0.01  # the axis is at least so long, so that few removed rows do not look like many


def plot_funnel(funnels: Sequence[PairFunnel], labels: Mapping[str, str]) -> Figure:
    """Draw a bar for each pair, in the order given: the shares of rows removed by each rule, and the counts kept."""
    if not funnels:
        raise ValueError("funnels=[] has no pair; there is nothing to plot")
    crowded = len(funnels) > 14
    with mpl.rc_context(STYLE):
        figure, axes = new_axes(8.4, 1.9 + (0.235 if crowded else 0.36) * len(funnels))
        places = np.arange(len(funnels))
        left = np.zeros(len(funnels))
        for name, rules, colour, hatch in _series(funnels):
            shares = np.array([sum(funnel.share(rule) for rule in rules) for funnel in funnels])
            style: Any = {"color": colour, "hatch": hatch, "edgecolor": "#ffffff", "linewidth": 0}
            axes.barh(places, shares, left=left, height=0.72, label=name, **style)
            left += shares
        size = 9.5 if crowded else 10.5
        for place, funnel, end in zip(places, funnels, left, strict=True):
            text = f"{funnel.kept:,} of {funnel.read:,} kept"
            axes.annotate(
                text, (end, place), (5, 0), textcoords="offset points", va="center", color=MUTED, fontsize=size
            )
        axes.set_yticks(places, [labels.get(funnel.pair, funnel.pair) for funnel in funnels], fontsize=size)
        axes.set_ylim(len(funnels) - 0.4, -0.6)
        axes.set_xlim(0, max(float(left.max()), _LEAST_SHARE) * 1.42)  # room for the text beside the longest bar
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
    """Return (name, rules, colour, hatch) of each part of the bars, the rules that removed most first.

    Plain colours come first, then hatched ones. Rules for which no style is left are drawn together.
    """
    all_pairs = total(funnels)
    ranked = sorted(used_rules(funnels), key=lambda rule: -all_pairs.removed[rule])
    styles = [(colour, hatch) for hatch in ("", "////") for colour in _COLOURS]
    num_single = len(styles) if len(ranked) <= len(styles) else len(styles) - 1
    series = [
        (rule.replace("_", " "), [rule], *style) for rule, style in zip(ranked[:num_single], styles, strict=False)
    ]
    return [*series, *([(_OTHERS, ranked[num_single:], MUTED, "")] if ranked[num_single:] else [])]
