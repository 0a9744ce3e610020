"""The figures of faults: the share of faulty translations, or of those with one fault, by resource."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from eval.report.plots.labels import label_ranges
from eval.report.plots.scores import legend_below, resource_axis
from eval.report.plots.style import BASELINE_STYLE, INK, MUTED, STYLE, new_axes, series_style

_MOST_LABELS = 10  # pairs with the highest shares, which are named


@dataclass(frozen=True, kw_only=True)
class FaultPoint:
    """The share (0 to 1) of a pair's translations that the figure counts."""

    label: str
    train_pairs: int
    share: float


@dataclass(frozen=True, kw_only=True)
class FaultPoints:
    """The points of a figure.

    what: the translations that it counts, as the label of its axis.
    systems: those of each multilingual system, by its label.
    baseline: those of the bilingual models, empty without them.
    floors: those of the references.
    """

    what: str
    systems: Mapping[str, Sequence[FaultPoint]]
    baseline: Sequence[FaultPoint]
    floors: Sequence[FaultPoint]


def plot_faults(shares: FaultPoints) -> Figure:
    """Draw the shares against training pairs, on a log axis.

    The shares of the references are dots.
    """
    series = [(name, points, series_style(number)) for number, (name, points) in enumerate(shares.systems.items())]
    series += [("bilingual", shares.baseline, BASELINE_STYLE)] if shares.baseline else []
    with mpl.rc_context(STYLE):
        figure, axes = new_axes(9.0, 4.8)
        points = [point for _, of_system, _ in series for point in of_system] + [*shares.floors]
        resource_axis(axes, [point.train_pairs for point in points])
        for name, of_system, style in series:
            x, y = _places(of_system)
            axes.plot(x, y, style.marker, color=style.colour, markersize=6.5, alpha=0.8, label=name)
        axes.plot(*_places(shares.floors), ".", color=MUTED, markersize=5, label="the test set’s own references")
        axes.set_ylim(0, 1.12 * max(point.share for point in points))
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
        axes.set_ylabel(shares.what)
        axes.set_title(f"{shares.what.capitalize()} by amount of training data")
        legend_below(figure, axes, min(len(series) + 1, 4))
        highest = {point.label: point for point in sorted(points, key=lambda point: point.share)}
        named = sorted(highest.values(), key=lambda point: -point.share)[:_MOST_LABELS]
        ranges = [(float(max(p.train_pairs, 1)), p.share, p.share, p.label) for p in named]
        label_ranges(figure, axes, ranges, [(float(max(p.train_pairs, 1)), p.share) for p in points], INK)
    return figure


def _places(points: Sequence[FaultPoint]) -> tuple[list[int], list[float]]:
    return [max(point.train_pairs, 1) for point in points], [point.share for point in points]
