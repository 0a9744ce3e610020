"""Names of languages and systems that matplotlib would read as formulas are drawn as text."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from eval.records.run_record import LossPoint
from eval.report.plots.loss import LossSeries, plot_losses
from eval.report.plots.scores import ScorePoint, plot_bleu_by_resource, plot_trendline
from eval.report.plots.style import inline_svg, save_figure
from eval.report.plots.trendline import TrendPoint

LABEL = r"x$\bad$"


def trendline() -> Figure:
    points = [
        TrendPoint(pair=f"{n}", label=LABEL, train_pairs=9 - n, delta=n, ci_low=n, ci_high=n, joint=n + np.zeros(80))
        for n in range(3)
    ]
    return plot_trendline({LABEL: points}, over=LABEL)


def resource() -> Figure:
    points = [ScorePoint(label=LABEL, train_pairs=10 * n, score=n, ci_low=n, ci_high=n) for n in (1, 2)]
    return plot_bleu_by_resource({LABEL: points, "other": points, "third": points})


def losses() -> Figure:
    points = [LossPoint(step=n, target_tokens=n, cross_entropy=1.0 / n, pairs={}, seconds=n) for n in (1, 2)]
    return plot_losses([LossSeries(system=LABEL, train=points, validation=points)], "tokens")


@pytest.mark.parametrize("figure", [trendline, resource, losses])
def test_a_formula_in_a_label_is_text(tmp_path: Path, figure: Callable[[], Figure]) -> None:
    drawn = figure()
    save_figure(drawn, tmp_path / "figure")
    assert (tmp_path / "figure.png").stat().st_size > 1000
    assert LABEL in inline_svg(drawn, "figure", "a figure")
