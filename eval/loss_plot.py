"""The figure of a training run: cross-entropy in training and validation against target tokens."""

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from eval.figure_style import GRID, INK, MUTED, PALETTE, STYLE, compact_count, new_axes
from eval.label_placement import spread
from eval.run_record import LossPoint

_MEAN_REACH = 12  # training records on either side that a point of the smoothed loss averages, at most


def plot_loss(
    train: Sequence[LossPoint], validation: Sequence[LossPoint], labels: Mapping[str, str] | None = None
) -> Figure:
    """Training and validation cross-entropy against target tokens; thin lines are single pairs."""
    if not train and not validation:
        raise ValueError("metrics.jsonl has no train and no validation records; there is no loss to plot")
    with mpl.rc_context(STYLE):
        figure, axes = new_axes(7.6, 4.6)
        ceiling: list[float] = []
        if train:
            tokens = [point.target_tokens for point in train]
            raw = np.array([point.cross_entropy for point in train])
            axes.plot(tokens, raw, color=PALETTE[0], linewidth=0.8, alpha=0.3)
            axes.plot(tokens, _moving_mean(raw), color=PALETTE[0], linewidth=2.2, label="training")
            ceiling.append(float(np.quantile(raw, 0.97)))
        if validation:
            _draw_validation(axes, validation, labels or {})
            ceiling.append(max(point.cross_entropy for point in validation))
            ceiling += [value for point in validation[1:2] for value in point.pairs.values()]
        bottom, _ = axes.get_ylim()
        axes.set_ylim(bottom, max(ceiling) + 0.06 * (max(ceiling) - bottom))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: compact_count(value)))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
        axes.set_xlim(left=0)
        axes.set_xlabel("target tokens seen")
        axes.set_ylabel("cross-entropy (nats per token)")
        axes.set_title("Loss of the multilingual model")
        axes.legend(loc="upper right")
    return figure


def _draw_validation(axes: Axes, validation: Sequence[LossPoint], labels: Mapping[str, str]) -> None:
    tokens = [point.target_tokens for point in validation]
    macro = [point.cross_entropy for point in validation]
    pairs = sorted({pair for point in validation for pair in point.pairs})
    ends = []
    for number, pair in enumerate(pairs):
        seen = [(point.target_tokens, point.pairs[pair]) for point in validation if pair in point.pairs]
        name = "validation, single pairs" if number == 0 else None
        axes.plot(*zip(*seen, strict=True), color=MUTED, linewidth=1.0, alpha=0.55, label=name)
        ends.append((*seen[-1], labels.get(pair, pair)))
    axes.plot(
        tokens,
        macro,
        color=PALETTE[1],
        linewidth=2.4,
        marker="s",
        markersize=4.5,
        label="validation, macro mean",
    )
    best = min(validation, key=lambda point: point.cross_entropy)
    axes.plot(
        best.target_tokens,
        best.cross_entropy,
        "*",
        color=PALETTE[1],
        markeredgecolor=INK,
        markersize=15,
        linestyle="none",
        label=f"best, {best.cross_entropy:.2f} at step {best.step:,}",
        zorder=5,
    )
    _label_line_ends(axes, ends)


def _label_line_ends(axes: Axes, ends: Sequence[tuple[float, float, str]]) -> None:
    """Codes at the right ends of their lines, moved apart where lines end close together."""
    if not ends:
        return
    heights = [y for _, y, _ in ends]
    bottom, top = min(heights), max(*heights, axes.get_ylim()[1] * 0.9)
    placed = spread(heights, 0.052 * max(top - bottom, 0.5))
    right = max(x for x, _, _ in ends)
    for (x, y, text), height in zip(ends, placed, strict=True):
        axes.annotate(
            text,
            (x, y),
            (right * 1.035, height),
            xycoords="data",
            textcoords="data",
            va="center",
            fontsize=9.5,
            color=INK,
            arrowprops={"arrowstyle": "-", "color": GRID, "linewidth": 0.8, "shrinkA": 1, "shrinkB": 1},
        )
    axes.set_xlim(0, right * 1.1)


def _moving_mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean over a window around each value: narrower at the steep start, one-sided at the noisy end."""
    reach = min(_MEAN_REACH, len(values) // 40)
    place = np.arange(len(values))
    starts = place - np.minimum(reach, place)
    ends = np.minimum(place + np.minimum(reach, place) + 1, len(values))
    sums = np.concatenate([[0.0], np.cumsum(values)])
    means: NDArray[np.float64] = (sums[ends] - sums[starts]) / (ends - starts)
    return means
