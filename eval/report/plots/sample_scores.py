"""The figure of validations that translate: scores of development sentences against target tokens."""

from collections.abc import Mapping, Sequence

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from eval.records.run_record import LossPoint
from eval.records.scores import METRICS
from eval.report.plots.labels import label_line_ends
from eval.report.plots.loss import LossSeries, best_point, extremes
from eval.report.plots.style import INK, MUTED, STYLE, compact_count, new_axes, series_style


def is_scored(runs: Sequence[LossSeries]) -> bool:
    """Return True if validations of a run have scores."""
    return any(point.score is not None for run in runs for point in run.validation)


def plot_sample_scores(runs: Sequence[LossSeries], labels: Mapping[str, str] | None = None) -> Figure:
    """Draw the scores of runs whose validations translate. A star marks the validation that training took as the best.

    Thin lines are the single pairs of a single run.

    labels: labels of its pairs, by default the pairs themselves.
    Raises ValueError if no run has scores.
    """
    if not is_scored(runs):
        raise ValueError("metrics.jsonl has no validation records with a score; there is no score to plot")
    scored = [(run.system, [point for point in run.validation if point.score is not None]) for run in runs]
    scored = [(system, points) for system, points in scored if points]
    systems = list(dict.fromkeys(run.system for run in runs))
    metrics = {points[0].metric: None for _, points in scored}
    with mpl.rc_context(STYLE):
        figure, axes = new_axes(7.6, 4.2)
        ends = []
        if len(runs) == 1:
            by_pair = _lines_of_pairs(scored[0][1])
            for line in by_pair.values():
                axes.plot(*zip(*line, strict=True), color=MUTED, linewidth=1.0, alpha=0.55)
            ends = extremes([(*line[-1], (labels or {}).get(pair, pair), MUTED) for pair, line in by_pair.items()])
        for system, points in scored:
            style = series_style(systems.index(system) + (len(runs) == 1))
            x, y = [point.target_tokens for point in points], [point.score or 0.0 for point in points]
            axes.plot(
                x, y, color=style.colour, linewidth=2.2, linestyle=style.line, marker=style.marker, markersize=4.5
            )
            best = best_point(points)
            name = METRICS[best.metric].title if best.metric in METRICS else best.metric
            label = f"best, {name} {best.score:.2f} at step {best.step:,}" if len(runs) == 1 else None
            axes.plot(
                best.target_tokens,
                best.score or 0.0,
                "*",
                color=style.colour,
                markeredgecolor=INK,
                markersize=15,
                linestyle="none",
                label=label,
                zorder=5,
            )
            if len(runs) > 1:
                ends.append((x[-1], y[-1], system if len(metrics) == 1 else f"{system}, {name}", style.colour))
        axes.set_xlim(left=0)
        if all(score >= 0 for _, points in scored for point in points for score in _scores(point)):
            axes.set_ylim(bottom=0)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: compact_count(value)))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
        axes.set_xlabel("target tokens seen")
        titles = [METRICS[metric].title if metric in METRICS else metric for metric in metrics]
        axes.set_ylabel(f"{' or '.join(titles)} of development sentences")
        axes.set_title("Translations in validation")
        if len(runs) == 1:
            axes.legend(loc="lower right")
        label_line_ends(figure, axes, ends, INK, 9.5)
    return figure


def _lines_of_pairs(points: Sequence[LossPoint]) -> dict[str, list[tuple[float, float]]]:
    """Return the places of each pair's line."""
    pairs = sorted({pair for point in points for pair in point.scores})
    return {
        pair: [(point.target_tokens, point.scores[pair]) for point in points if pair in point.scores] for pair in pairs
    }


def _scores(point: LossPoint) -> list[float]:
    """Return the mean score of a validation and those of its pairs."""
    return [*point.scores.values(), *([] if point.score is None else [point.score])]
