"""The figures of scores: gain by resource (GShard, Figure 6) and BLEU by resource."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from eval.records.ending import MARK
from eval.report.plots.baseline_marks import UNFINISHED_NOTE, inner_boundaries, mark_boundaries
from eval.report.plots.labels import label_columns, label_line_ends, label_ranges
from eval.report.plots.style import (
    BASELINE_STYLE,
    GRID,
    INK,
    MUTED,
    STYLE,
    SeriesStyle,
    compact_count,
    new_axes,
    series_style,
)
from eval.report.plots.trendline import (
    FEWEST_TO_FIT,
    TrendPoint,
    default_bandwidth,
    rank_pairs,
    smooth,
    smoothing_weights,
    spearman,
    trend_band,
)

_WITH_BARS = 2  # up to so many systems have an interval at every point; of more, the points are pale
_CROWDED_PAIRS = 14


@dataclass(frozen=True, kw_only=True)
class ScorePoint:
    """A system's score on one pair, with its 95 % interval.

    unfinished: its budget ended the model while it was still improving.
    """

    label: str
    train_pairs: int
    score: float
    ci_low: float
    ci_high: float
    unfinished: bool = False


def plot_trendline(
    systems: Mapping[str, Sequence[TrendPoint]], over: str = "", boundaries: Sequence[int] = ()
) -> Figure:
    """Draw the gain in BLEU by pair, with a smoothed line and its band for each system of FEWEST_TO_FIT pairs or more.

    Pairs are at equal distances, in decreasing order of training data. Systems without points are not drawn, but the
    others keep their styles. A pair whose baseline was still improving has a mark.

    over: the system over which the gain is; by default the bilingual baselines.
    boundaries: training pairs up to which baselines have other settings than above; each is drawn between two pairs.
    Raises ValueError if no system has a point.
    """
    if not any(systems.values()):
        raise ValueError("systems={} has no points; a trendline needs at least one pair with a baseline")
    ranks = rank_pairs(systems)
    point_of = {point.pair: point for points in systems.values() for point in points}
    crowded = len(ranks) > _CROWDED_PAIRS
    with mpl.rc_context(STYLE):
        figure, axes = new_axes(max(7.6, 2.2 + 0.25 * len(ranks)), 4.4 if len(systems) <= _WITH_BARS else 6.0)
        axes.axhline(0, color=INK, linewidth=1.4)
        ends = [(1.0 * len(ranks) - 0.4, 0.0, over or "bilingual", MUTED)]
        fitted = False
        for number, (name, points) in enumerate(systems.items()):
            style = series_style(number)
            if points:
                end = _draw_trend(axes, points, ranks, number, len(systems))
                _key(axes, name, style, fitted=end is not None)
                if end is not None:
                    fitted = True
                    ends.append((*end, name, style.colour))
        unfinished = {point.pair for points in systems.values() for point in points if point.baseline_unfinished}
        join = "  " if crowded else "\n"
        axes.set_xticks(
            range(len(ranks)),
            [
                f"{point_of[pair].label}{MARK if pair in unfinished else ''}{join}"
                f"{compact_count(point_of[pair].train_pairs)}"
                for pair in ranks
            ],
            rotation=90 if crowded else 0,
        )
        axes.set_xlim(-0.6, len(ranks) - 0.4)
        axes.grid(visible=False, axis="x")
        axes.set_xlabel(f"language and training pairs, most to fewest{UNFINISHED_NOTE if unfinished else ''}")
        axes.set_ylabel("ΔBLEU")
        axes.set_title(f"BLEU gained over {over or 'each language’s bilingual baseline'}", pad=24)
        bars = "points with 95 % intervals" if len(systems) <= _WITH_BARS else "points are single languages"
        lines = "; the lines are smoothed over ranks, with their 95 % bands" if fitted else ""
        _subtitle(axes, bars + lines)
        inner = inner_boundaries([point_of[pair].train_pairs for pair in ranks], boundaries)
        mark_boundaries(axes, {boundary: count - 0.5 for boundary, count in inner.items()}, rising=False)
        legend_below(figure, axes, min(len(systems), 4))
        label_line_ends(figure, axes, ends, INK)
    return figure


def _draw_trend(
    axes: Axes, points: Sequence[TrendPoint], ranks: Mapping[str, int], number: int, systems: int
) -> tuple[float, float] | None:
    """Draw one system and return the right end of its line, None without one.

    number, systems: number of the system, and how many are drawn.
    """
    style, shift = series_style(number), min(0.16, 0.5 / systems) * (number - (systems - 1) / 2)
    ordered = sorted(points, key=lambda point: ranks[point.pair])
    x = np.array([ranks[point.pair] for point in ordered], dtype=np.float64)
    y = np.array([point.delta for point in ordered])
    low, high = ([point.ci_low for point in ordered], [point.ci_high for point in ordered])
    with_bars, fitted = systems <= _WITH_BARS, len(ordered) >= FEWEST_TO_FIT
    large = with_bars or not fitted
    if with_bars:
        axes.vlines(x + shift, low, high, color=style.colour, linewidth=1.6, alpha=0.55)
    axes.plot(
        x + shift,
        y,
        style.marker,
        color=style.colour,
        markersize=6.5 if large else 4,
        alpha=1 if large else 0.55,
        markeredgewidth=1.5 if large else 0.5,
    )
    if not fitted:
        return None
    at = np.linspace(x.min(), x.max(), 40 * (len(x) - 1) + 1)
    weights = smoothing_weights(x, at, default_bandwidth(len(x)))
    trend = weights @ y
    axes.fill_between(
        at, *trend_band(weights, [point.joint for point in ordered]), color=style.colour, alpha=0.13, linewidth=0
    )
    axes.plot(at, trend, color=style.colour, linewidth=2.4, linestyle=style.line)
    return float(at[-1]), float(trend[-1])


def _key(axes: Axes, name: str, style: SeriesStyle, *, fitted: bool) -> None:
    """Add an entry to the legend for the points of a series, and for its line if it has one."""
    line = style.line if fitted else "none"
    axes.plot(
        [], [], color=style.colour, linewidth=2.4, linestyle=line, marker=style.marker, markersize=6.5, label=name
    )


def plot_bleu_by_resource(
    systems: Mapping[str, Sequence[ScorePoint]], baseline: Sequence[ScorePoint] = (), boundaries: Sequence[int] = ()
) -> Figure:
    """Draw BLEU of each system and of the bilingual baselines against training pairs, on a log axis.

    Several systems have smoothed lines in place of intervals, where they have FEWEST_TO_FIT pairs. A pair whose
    baseline was still improving has a mark.

    boundaries: training pairs up to which baselines have other settings than above.
    Raises ValueError if no system has a point.
    """
    if not any(systems.values()):
        raise ValueError("systems={} has no points; there is nothing to plot against resource")
    series = [(name, points, series_style(number)) for number, (name, points) in enumerate(systems.items())]
    series += [("bilingual", baseline, BASELINE_STYLE)] if baseline else []
    with_bars = len(series) <= _WITH_BARS
    with mpl.rc_context(STYLE):
        sizes = {point.train_pairs for _, points, _ in series for point in points}
        figure, axes = new_axes(7.6 if with_bars and len(sizes) <= _CROWDED_PAIRS else 10.4, 4.8 if with_bars else 6.0)
        width = resource_axis(axes, list(sizes))
        marks: list[tuple[float, float]] = []
        ends = []
        for number, (name, points, style) in enumerate(series):
            # The points of a pair are side by side, at most 1.2 % of the axis apart, so that none covers another.
            shift = 10 ** ((0.012 if with_bars else 0.004) * width * (number - (len(series) - 1) / 2))
            marks += _draw_scores(axes, name, points, shift, style, with_bars)
            if not with_bars and len(points) >= FEWEST_TO_FIT:
                ends.append((*_draw_curve(axes, points, style), name, style.colour))
        bottom, top = axes.get_ylim()
        axes.set_ylim(min(0.0, bottom), top + 0.06 * (top - min(0.0, bottom)))  # room for the top label
        axes.set_ylabel("BLEU")
        unfinished = {point.label for point in baseline if point.unfinished}
        if unfinished:
            axes.set_xlabel(f"{axes.get_xlabel()}{UNFINISHED_NOTE}")
        mark_boundaries(axes, {rows: rows for rows in inner_boundaries(list(sizes), boundaries)}, rising=True)
        extents = [
            (x, low, high, f"{label}{MARK if label in unfinished else ''}")
            for x, low, high, label in _extents([points for _, points, _ in series], with_bars)
        ]
        legend_below(figure, axes, min(len(series), 3 if with_bars else 4))
        if with_bars and len(extents) <= _CROWDED_PAIRS:
            axes.set_title("BLEU by amount of training data")
            label_ranges(figure, axes, extents, marks, INK)
        else:
            axes.set_title("BLEU by amount of training data", pad=26 + 5.2 * max(len(text) for *_, text in extents))
            axes.vlines(*zip(*[(x, low, high) for x, low, high, _ in extents], strict=True), color=GRID, zorder=0)
            label_line_ends(figure, axes, ends, INK)
            label_columns(figure, axes, [(x, text) for x, _, _, text in extents], INK, MUTED)
    return figure


def _draw_scores(
    axes: Axes, name: str, points: Sequence[ScorePoint], shift: float, style: SeriesStyle, bars: bool
) -> list[tuple[float, float]]:
    """Draw one system's points, and return the places that labels must not cover: its points or whole intervals."""
    x = [max(point.train_pairs, 1) * shift for point in points]
    y = [point.score for point in points]
    low, high = [point.ci_low for point in points], [point.ci_high for point in points]
    if bars:
        axes.vlines(x, low, high, color=style.colour, linewidth=1.6, alpha=0.45)
        axes.plot(x, y, style.marker, color=style.colour, markersize=6.5, label=f"{name}, with 95 % interval")
        ranges = zip(x, low, high, strict=True)
        return [(column, float(value)) for column, a, b in ranges for value in np.linspace(a, b, 9)]
    fitted = len(points) >= FEWEST_TO_FIT
    size, alpha = (4, 0.6) if fitted else (6.5, 1.0)
    axes.plot(x, y, style.marker, color=style.colour, markersize=size, alpha=alpha, markeredgewidth=0.8)
    _key(axes, name, style, fitted=fitted)
    return list(zip(x, y, strict=True))


def _draw_curve(axes: Axes, points: Sequence[ScorePoint], style: SeriesStyle) -> tuple[float, float]:
    """Draw BLEU smoothed over the logarithm of the training pairs, and return the right end of the line."""
    x = np.log10([max(point.train_pairs, 1) for point in points])
    if np.ptp(x) == 0:
        return float(10 ** x[0]), points[0].score
    at = np.linspace(x.min(), x.max(), 200)
    curve = smooth(x, [point.score for point in points], at, float(np.ptp(x)) / 6)
    axes.plot(10**at, curve, color=style.colour, linewidth=2.4, linestyle=style.line)
    return float(10 ** at[-1]), float(curve[-1])


def correlations(systems: Mapping[str, Sequence[ScorePoint]]) -> str:
    """Return a sentence with Spearman's correlation of BLEU and training pairs for every system."""
    rhos = {
        name: spearman([point.train_pairs for point in points], [point.score for point in points])
        for name, points in systems.items()
    }
    texts = [f"{name} " + f"{rho:.2f}".replace("-", "−") for name, rho in rhos.items() if rho is not None]
    return (
        f"Spearman’s ρ of the two: {', '.join(texts)}."
        if texts
        else ("Spearman’s ρ is undefined: there are fewer than three pairs, or all have one score or one size.")
    )


def _extents(series: Sequence[Sequence[ScorePoint]], bars: bool) -> list[tuple[float, float, float, str]]:
    """Return (x, bottom, top, label) of every pair: the extent of all its points, or of their intervals."""
    extents: dict[str, tuple[float, float, float, str]] = {}
    for points in series:
        for point in points:
            bottom, top = (point.ci_low, point.ci_high) if bars else (point.score, point.score)
            _, low, high, _ = extents.get(point.label, (0.0, bottom, top, ""))
            x = float(max(point.train_pairs, 1))
            extents[point.label] = (x, min(low, bottom), max(high, top), point.label)
    return list(extents.values())


def resource_axis(axes: Axes, sizes: Sequence[int]) -> float:
    """Set up the log axis of training pairs, and return its width in decades."""
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


def legend_below(figure: Figure, axes: Axes, most_columns: int) -> None:
    """Draw the legend under the figure, where it covers no interval, in as many columns as its names leave room for."""
    entries = axes.get_legend_handles_labels()
    for columns in range(most_columns, 0, -1):
        legend = figure.legend(*entries, loc="outside lower center", ncols=columns, handlelength=3.2)
        figure.draw_without_rendering()
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()
