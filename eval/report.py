"""report.html of a run: one self-contained file from the plain files of its directory."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from markupsafe import Markup
from matplotlib.figure import Figure

from eval import number_format
from eval.data_section import data_section
from eval.figure_style import inline_svg, save_figure
from eval.language import pair_labels
from eval.ledger import MODEL_COLUMNS, flops_unit, model_rows, total_rows
from eval.loss_plot import plot_loss
from eval.pages import environment, flatten
from eval.plots import ScorePoint, plot_bleu_by_resource, plot_trendline
from eval.results import group_seeds, load_results
from eval.run_record import RunRecord, load_losses
from eval.scores import BASELINE, SYSTEM, ScoreRow
from eval.scores_section import scores_section
from eval.sentences_section import sentences_section
from eval.summary import PairSummary, headline, summarise
from eval.trendline import TrendPoint


def write_report(run_dir: Path) -> Path:
    """Write report.html and its figures (PNG and SVG) into a run's directory and return the page's path.

    Needs run.json, scores.csv, significance.csv, metrics.jsonl and, where sentences may be shown,
    translations/. Raises ValueError naming what is missing.
    """
    (run,) = load_results([("", run_dir)])
    record, scores = run.record, run.scores
    summaries = summarise(record, scores, run.gains)
    figures = _draw_figures(run_dir, record, scores, summaries)
    for name, figure in figures.items():
        save_figure(figure, run_dir / name)
    page = (
        environment()
        .get_template("report.html.j2")
        .render(
            record=record,
            headline=headline(summaries),
            figures={name: _inline(name, figure, summaries) for name, figure in figures.items()},
            scores=scores_section(run_dir, group_seeds([run])),
            sentences=sentences_section([run]),
            totals=total_rows(record.systems),
            model_columns=MODEL_COLUMNS,
            models=model_rows(record.systems),
            flops_unit=flops_unit(record.systems),
            data=data_section(run_dir, record),
            config=dict(flatten(record.config)),
            n=number_format,
        )
    )
    path = run_dir / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


def _draw_figures(
    run_dir: Path, record: RunRecord, scores: Sequence[ScoreRow], summaries: Sequence[PairSummary]
) -> dict[str, Figure]:
    labels = pair_labels(record.pairs, record.languages)
    figures = {}
    gains = [
        TrendPoint(
            pair=summary.pair,
            label=labels[summary.pair],
            train_pairs=summary.train_pairs,
            delta=summary.gains["bleu"].delta,
            ci_low=summary.gains["bleu"].ci_low,
            ci_high=summary.gains["bleu"].ci_high,
        )
        for summary in summaries
        if "bleu" in summary.gains
    ]
    if gains:
        figures["trendline"] = plot_trendline({SYSTEM: gains})
    names = sorted({row.system for row in scores}, key=lambda name: (name != SYSTEM, name != BASELINE, name))
    points = {name: _score_points(scores, name, labels) for name in names}
    figures["bleu_vs_resource"] = plot_bleu_by_resource(points)
    train, validation = load_losses(run_dir, "train"), load_losses(run_dir, "validation")
    figures["loss"] = plot_loss(train, validation, labels)
    return figures


def _score_points(scores: Sequence[ScoreRow], system: str, labels: Mapping[str, str]) -> list[ScorePoint]:
    return [
        ScorePoint(
            label=labels[row.pair],
            train_pairs=row.train_pairs,
            score=row.score,
            ci_low=row.ci_low,
            ci_high=row.ci_high,
        )
        for row in scores
        if row.system == system and row.metric == "bleu" and row.pair in labels
    ]


def _inline(name: str, figure: Figure, summaries: Sequence[PairSummary]) -> Markup:
    n = number_format
    alternatives = {
        "trendline": "BLEU gained over the bilingual baseline, by decreasing training data: "
        + ", ".join(f"{summary.pair} {n.signed(summary.gain('bleu'))}" for summary in summaries),
        "bleu_vs_resource": "BLEU against training pairs: "
        + ", ".join(f"{s.pair} {n.decimal(s.score(SYSTEM, 'bleu'))} at {s.train_pairs:,}" for s in summaries),
        "loss": "Training and validation cross-entropy of the multilingual model against target tokens seen",
    }
    return Markup(inline_svg(figure, name, escape(alternatives[name], quote=True)))
