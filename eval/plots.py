"""The figures of scores: gain by resource (GShard, Figure 6) and BLEU by resource."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from eval.figure_style import INK, MARKERS, MUTED, PALETTE, STYLE, compact_count, new_axes
from eval.label_placement import label_ranges
from eval.trendline import TrendPoint, default_bandwidth, rank_pairs, smooth, spearman


@dataclass(frozen=True, kw_only=True)
class ScorePoint:
    """A system's score on one pair, with its 95 % interval."""

    label: str
    train_pairs: int
    score: float
    ci_low: float
    ci_high: float


def plot_trendline(systems: Mapping[str, Sequence[TrendPoint]]) -> Figure:
    """ΔBLEU against bilingual baselines, pairs equidistant by decreasing resource, one trend a system."""
    if not any(systems.values()):
        raise ValueError("systems={} has no points; a trendline needs at least one pair with a baseline")
    ranks = rank_pairs(systems)
    known = {point.pair: point for points in systems.values() for point in points}
    with mpl.rc_context(STYLE):
        figure, axes = new_axes(max(7.6, 1.6 + 0.3 * len(ranks)), 4.4)
        axes.axhline(0, color=INK, linewidth=1.4)
        axes.annotate(
            "bilingual\nbaseline",
            (1, 0),
            (5, 0),
            xycoords=axes.get_yaxis_transform(),
            textcoords="offset points",
            va="center",
            color=MUTED,
            fontsize=10,
        )
        for number, (name, points) in enumerate(systems.items()):
            shift = 0.16 * (number - (len(systems) - 1) / 2)
            _draw_trend(axes, name, points, ranks, shift, number)
        crowded = len(ranks) > 14
        join = "  " if crowded else "\n"
        axes.set_xticks(
            range(len(ranks)),
            [f"{known[p].label}{join}{compact_count(known[p].train_pairs)}" for p in ranks],
            rotation=90 if crowded else 0,
        )
        axes.set_xlim(-0.6, len(ranks) - 0.4)
        axes.grid(visible=False, axis="x")
        axes.set_xlabel("language and training pairs, most to fewest")
        axes.set_ylabel("ΔBLEU")
        axes.set_title("BLEU gained over each language's bilingual baseline", pad=24)
        _subtitle(axes, "points with 95 % intervals; the line is smoothed over ranks")
        _legend_below(figure, axes, min(len(systems), 4))
    return figure


def _draw_trend(
    axes: Axes, name: str, points: Sequence[TrendPoint], ranks: Mapping[str, int], shift: float, number: int
) -> None:
    colour, marker = PALETTE[number % len(PALETTE)], MARKERS[number % len(MARKERS)]
    ordered = sorted(points, key=lambda point: ranks[point.pair])
    x = np.array([ranks[point.pair] for point in ordered], dtype=np.float64)
    y = np.array([point.delta for point in ordered])
    axes.vlines(
        x + shift,
        [point.ci_low for point in ordered],
        [point.ci_high for point in ordered],
        color=colour,
        linewidth=1.6,
        alpha=0.55,
    )
    axes.plot(x + shift, y, marker, color=colour, markersize=6.5)
    axes.plot([], [], color=colour, linewidth=2.4, marker=marker, markersize=6.5, label=name)
    if len(ordered) > 1:
        at = np.linspace(x.min(), x.max(), 200)
        trend = smooth(x, y, at, default_bandwidth(len(x)))
        axes.plot(at, trend, color=colour, linewidth=2.4)


def plot_bleu_by_resource(systems: Mapping[str, Sequence[ScorePoint]]) -> Figure:
    """BLEU of each system against training pairs on a log axis, with Spearman's correlation of the two."""
    if not any(systems.values()):
        raise ValueError("systems={} has no points; there is nothing to plot against resource")
    with mpl.rc_context(STYLE):
        figure, axes = new_axes(7.6, 4.8)
        width = _resource_axis(axes, [point.train_pairs for points in systems.values() for point in points])
        marks: list[tuple[float, float]] = []
        for number, (name, points) in enumerate(systems.items()):
            # Systems of one pair stand beside each other, 1.2 % of the axis apart.
            shift = 10 ** (0.012 * width * (number - (len(systems) - 1) / 2))
            marks += _draw_scores(axes, name, points, shift, number)
        bottom, top = axes.get_ylim()
        axes.set_ylim(min(0.0, bottom), top + 0.06 * (top - min(0.0, bottom)))  # room for the top label
        axes.set_ylabel("BLEU")
        axes.set_title("BLEU by amount of training data", pad=24)
        _subtitle(axes, _correlations(systems))
        _legend_below(figure, axes, min(len(systems), 3))
        label_ranges(figure, axes, _label_ranges_of(systems), marks, INK)
    return figure


def _draw_scores(
    axes: Axes, name: str, points: Sequence[ScorePoint], shift: float, number: int
) -> list[tuple[float, float]]:
    """Draw one system and return points all along its intervals, for labels to keep off."""
    colour, marker = PALETTE[number % len(PALETTE)], MARKERS[number % len(MARKERS)]
    x = [max(point.train_pairs, 1) * shift for point in points]
    low, high = [point.ci_low for point in points], [point.ci_high for point in points]
    axes.vlines(x, low, high, color=colour, linewidth=1.6, alpha=0.45)
    axes.plot(
        x,
        [p.score for p in points],
        marker,
        color=colour,
        markersize=6.5,
        label=f"{name}, with 95 % interval",
    )
    return [
        (column, float(value))
        for column, bottom, top in zip(x, low, high, strict=True)
        for value in np.linspace(bottom, top, 9)
    ]


def _correlations(systems: Mapping[str, Sequence[ScorePoint]]) -> str:
    texts = []
    for name, points in systems.items():
        rho = spearman([point.train_pairs for point in points], [point.score for point in points])
        if rho is not None:
            texts.append(f"{name} " + f"{rho:.2f}".replace("-", "−"))
    return "Spearman's ρ: " + ", ".join(texts) if texts else "Spearman's ρ: undefined under three pairs"


def _label_ranges_of(
    systems: Mapping[str, Sequence[ScorePoint]],
) -> list[tuple[float, float, float, str]]:
    """For every pair the whole extent of its systems' intervals, so that a label clears all of them."""
    extents: dict[str, tuple[float, float, float, str]] = {}
    for points in systems.values():
        for point in points:
            _, low, high, _ = extents.get(point.label, (0.0, point.ci_low, point.ci_high, ""))
            x = float(max(point.train_pairs, 1))
            extents[point.label] = (x, min(low, point.ci_low), max(high, point.ci_high), point.label)
    return list(extents.values())


def _resource_axis(axes: Axes, sizes: Sequence[int]) -> float:
    """Set up the log axis for training pairs and return its width in decades."""
    low, high = max(min(sizes), 1) / 1.5, max(*sizes, 1) * 1.5
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    decades = float(np.log10(high / low))
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades < 3.5 else (1.0,), numticks=20))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: compact_count(value)))
    axes.set_xlabel("training pairs (log scale)")
    return decades


def _subtitle(axes: Axes, text: str) -> None:
    axes.annotate(
        text, (0, 1), (0, 8), xycoords="axes fraction", textcoords="offset points", color=MUTED, fontsize=10.5
    )


def _legend_below(figure: Figure, axes: Axes, columns: int) -> None:
    """A legend under the figure, where no interval can run into it."""
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=columns)
