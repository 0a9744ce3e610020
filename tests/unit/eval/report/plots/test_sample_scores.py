"""Scores of validations that translate, in a figure, on the page and in the ledger."""

import json
from collections.abc import Sequence

import pytest

from eval.records.results import load_results
from eval.records.run_record import LossPoint
from eval.report.page import write_report
from eval.report.plots.loss import LossSeries, plot_loss
from eval.report.plots.sample_scores import plot_sample_scores
from eval.score.run import write_scores
from tests.unit.eval.conftest import write_jsonl


def scored(scores: Sequence[float], losses: Sequence[float], metric: str = "chrf++") -> list[LossPoint]:
    return [
        LossPoint(
            step=10 * n,
            target_tokens=1000 * n,
            cross_entropy=loss,
            pairs={},
            metric=metric,
            score=score,
            scores={"de-en": score + 2, "fr-en": score - 2},
        )
        for n, (score, loss) in enumerate(zip(scores, losses, strict=True), start=1)
    ]


def test_scores_of_validations_have_a_star_where_training_took_the_model() -> None:
    """The one with the lower loss of the two highest scores is the best, as in `Progress.judge`."""
    points = scored([10.0, 30.0, 30.0, 20.0], [5.0, 4.0, 3.5, 3.0])
    axes = plot_sample_scores([LossSeries(system="a", train=[], validation=points)]).axes[0]
    (star,) = [line for line in axes.lines if line.get_marker() == "*"]
    assert ([*star.get_xdata()], [*star.get_ydata()]) == ([3000], [30.0])
    assert star.get_label() == "best, chrF++ 30.00 at step 30"
    assert axes.get_ylabel() == "chrF++ of development sentences"
    assert [[*line.get_ydata()] for line in axes.lines[:3]] == [
        [12.0, 32.0, 32.0, 22.0],
        [8.0, 28.0, 28.0, 18.0],
        [10.0, 30.0, 30.0, 20.0],
    ]
    assert sorted(text.get_text() for text in axes.texts) == ["de-en", "fr-en"]
    (star,) = [line for line in plot_loss([], points).axes[0].lines if line.get_marker() == "*"]
    assert [*star.get_xdata()] == [3000]


def test_scores_of_several_runs_name_their_metrics_and_leave_out_runs_without_any() -> None:
    plain = [LossPoint(step=1, target_tokens=9, cross_entropy=3.0, pairs={})]
    runs = [
        LossSeries(system="plain", train=[], validation=plain),
        LossSeries(system="a", train=[], validation=scored([10.0, 20.0], [3.0, 2.0])),
        LossSeries(system="b", train=[], validation=scored([5.0, 4.0], [3.0, 2.0], "bleu")),
    ]
    axes = plot_sample_scores(runs).axes[0]
    assert sorted(text.get_text() for text in axes.texts) == ["a, chrF++", "b, BLEU"]
    assert axes.get_ylabel() == "chrF++ or BLEU of development sentences"
    with pytest.raises(ValueError, match="no score to plot"):
        plot_sample_scores(runs[:1])


def test_scores_below_0_are_on_the_figure() -> None:
    bottoms = []
    for first in (-20.0, 20.0):
        series = LossSeries(system="a", train=[], validation=scored([first, 30.0], [5.0, 4.0], "comet"))
        bottoms.append(plot_sample_scores([series]).axes[0].get_ylim()[0])
    assert bottoms[0] < -20
    assert bottoms[1] == 0


def test_the_page_of_a_run_has_the_figure_and_the_score_of_the_best_validation(make_run) -> None:
    run_dir = make_run(["de-en"])
    text = write_report_of(run_dir)
    assert "figure-validation_score" not in text
    assert not (run_dir / "validation_score.png").exists()
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        if line["event"] == "validation":
            line |= {"metric": "chrf++", "score": 20.0 + line["step"] / 10, "scores": {"de-en": 20.0}}
    write_jsonl(run_dir / "metrics.jsonl", lines)
    record = json.loads((run_dir / "run.json").read_text())
    record["systems"]["moe"][0] |= {"validation_loss": 3.25, "validation_metric": "chrf++", "validation_score": 24.0}
    (run_dir / "run.json").write_text(json.dumps(record))
    text = write_report_of(run_dir)
    assert "<td>3.250, chrF++ 24.00</td>" in text
    assert "Scores of translations of development sentences by" in text
    assert (run_dir / "validation_score.png").stat().st_size > 0


def write_report_of(run_dir) -> str:
    write_scores(run_dir, n_resamples=20)
    return write_report(run_dir, load_results([("", run_dir)])).read_text(encoding="utf-8")
