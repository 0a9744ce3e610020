"""The figures of losses: cross-entropy in training and validation against target tokens or time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from eval.records.run_record import LossPoint
from eval.report.plots.labels import label_line_ends
from eval.report.plots.loss_levels import moving_mean
from eval.report.plots.style import INK, MUTED, PALETTE, STYLE, compact_count, new_axes, series_style

_HOUR, _MINUTE = 3600.0, 60.0
_MANY_PAIRS = 14  # of more lines, only the highest and the lowest are named
_NUM_NAMED = 6


@dataclass(frozen=True, kw_only=True)
class LossSeries:
    """Losses of one run. system: the label of its system; runs of one system have the same style and one label."""

    system: str
    train: Sequence[LossPoint]
    validation: Sequence[LossPoint]


def plot_loss(
    train: Sequence[LossPoint], validation: Sequence[LossPoint], labels: Mapping[str, str] | None = None
) -> Figure:
    """Draw training and validation cross-entropy of one run against target tokens. Thin lines are single pairs.

    labels: labels of the pairs, by default the pairs themselves.
    Raises ValueError without records.
    """
    if not train and not validation:
        raise ValueError("metrics.jsonl has no train and no validation records; there is no loss to plot")
    with mpl.rc_context(STYLE):
        figure, axes = new_axes(7.6, 4.6)
        ceiling: list[float] = []
        ends: list[tuple[float, float, str, str]] = []
        if train:
            tokens = [point.target_tokens for point in train]
            raw = np.array([point.cross_entropy for point in train])
            axes.plot(tokens, raw, color=PALETTE[0], linewidth=0.8, alpha=0.3)
            axes.plot(tokens, moving_mean(raw), color=PALETTE[0], linewidth=2.2, label="training")
            ceiling.append(float(np.quantile(raw, 0.97)))
        if validation:
            ends = _draw_validation(axes, validation, labels or {})
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
        label_line_ends(figure, axes, ends, INK, 9.5)
    return figure


def plot_losses(runs: Sequence[LossSeries], against: Literal["tokens", "time"]) -> Figure:
    """Draw smoothed training loss (thin) and validation loss (with markers) of several runs against tokens or time.

    Raises ValueError without records.
    """
    if not any(run.train or run.validation for run in runs):
        raise ValueError("metrics.jsonl has no train and no validation records; there is no loss to plot")
    seconds = [point.seconds or 0.0 for run in runs for point in (*run.train, *run.validation)]
    unit, size = ("hours", _HOUR) if max(seconds) > 2 * _HOUR else ("minutes", _MINUTE)

    def place(point: LossPoint) -> float:
        return float(point.target_tokens) if against == "tokens" else (point.seconds or 0.0) / size

    systems = list(dict.fromkeys(run.system for run in runs))
    with mpl.rc_context(STYLE):
        figure, axes = new_axes(5.6, 4.8)
        ends = {run.system: end for run in runs for end in _draw_run(axes, run, place, systems.index(run.system))}
        values = [value for run in runs for value in _visible_losses(run)]
        margin = 0.06 * (max(values) - min(values)) or 0.5
        axes.set_ylim(min(values) - margin, max(values) + margin)
        if against == "tokens":
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: compact_count(value)))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
        axes.set_xlim(left=0)
        axes.set_xlabel("target tokens seen" if against == "tokens" else f"training time ({unit})")
        axes.set_ylabel("cross-entropy (nats per token)")
        axes.set_title(f"Loss by {'tokens' if against == 'tokens' else 'time'}")
        label_line_ends(figure, axes, list(ends.values()), INK, 9.5)
    return figure


def _draw_run(
    axes: Axes, run: LossSeries, place: Callable[[LossPoint], float], number: int
) -> list[tuple[float, float, str, str]]:
    """Draw one run, and return the right end of its line of validation, or of training if it has no validation."""
    style = series_style(number)
    ends = []
    if run.train:
        means = moving_mean([point.cross_entropy for point in run.train])
        x = [place(point) for point in run.train]
        axes.plot(x, means, color=style.colour, linewidth=1.1, linestyle=style.line, alpha=0.8)
        ends = [(x[-1], float(means[-1]), run.system, style.colour)]
    if run.validation:
        x, y = [place(point) for point in run.validation], [point.cross_entropy for point in run.validation]
        axes.plot(x, y, color=style.colour, linewidth=2.0, linestyle=style.line, marker=style.marker, markersize=4.5)
        ends = [(x[-1], y[-1], run.system, style.colour)]
    return ends


def _visible_losses(run: LossSeries) -> list[float]:
    """Return the losses that the figure must have room for: all of validation, and training without its beginning."""
    train = moving_mean([point.cross_entropy for point in run.train])
    return [point.cross_entropy for point in run.validation] + [float(value) for value in train[len(train) // 8 :]]


def _draw_validation(
    axes: Axes, validation: Sequence[LossPoint], labels: Mapping[str, str]
) -> list[tuple[float, float, str, str]]:
    """Draw the mean and every pair, and return the ends of the lines that get a label."""
    tokens = [point.target_tokens for point in validation]
    macro = [point.cross_entropy for point in validation]
    pairs = sorted({pair for point in validation for pair in point.pairs})
    ends = []
    for number, pair in enumerate(pairs):
        points = [(point.target_tokens, point.pairs[pair]) for point in validation if pair in point.pairs]
        name = "validation, single pairs" if number == 0 else None
        axes.plot(*zip(*points, strict=True), color=MUTED, linewidth=1.0, alpha=0.55, label=name)
        ends.append((*points[-1], labels.get(pair, pair), MUTED))
    axes.plot(
        tokens,
        macro,
        color=PALETTE[1],
        linewidth=2.4,
        marker="s",
        markersize=4.5,
        label="validation, macro mean",
    )
    best = best_point(validation)
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
    return extremes(ends)


def best_point(validation: Sequence[LossPoint]) -> LossPoint:
    """Return the best validation, as training chose it: by score if validations were scored, then by loss."""
    return min(validation, key=lambda point: (-(point.score or 0.0), point.cross_entropy, point.step))


def extremes(ends: Sequence[tuple[float, float, str, str]]) -> list[tuple[float, float, str, str]]:
    """Return all ends of lines, or the highest and the lowest if there are many."""
    ordered = sorted(ends, key=lambda end: -end[1])
    return ordered if len(ordered) <= _MANY_PAIRS else ordered[: _NUM_NAMED // 2] + ordered[-(_NUM_NAMED // 2) :]
