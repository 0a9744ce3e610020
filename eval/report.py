"""report.html of a run: one self-contained file from the plain files of its directory."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from markupsafe import Markup
from matplotlib.figure import Figure

from eval import number_format
from eval.data_section import data_section
from eval.figure_style import inline_svg, save_figure
from eval.language import pair_labels, text_direction
from eval.ledger import MODEL_COLUMNS, flops_unit, model_rows, total_rows
from eval.loss_plot import plot_loss
from eval.pages import environment, flatten
from eval.plots import ScorePoint, plot_bleu_by_resource, plot_trendline
from eval.run_record import Json, RunRecord, Translation, load_losses, load_run, load_translations
from eval.scores import BASELINE, METRICS, SYSTEM, ScoreRow, load_scores, load_significance
from eval.summary import PairSummary, has_baseline, headline, summarise, summarise_means
from eval.trendline import TrendPoint

_NAMES = {"chrf++": "chrF++", "chrf": "chrF", "ter": "TER", "spbleu": "spBLEU", "spbleu101": "spBLEU-101"}
_NUM_SAMPLES = 3
_SAMPLE_CHARACTERS = range(25, 201)  # references that read well in a column


def write_report(run_dir: Path) -> Path:
    """Write report.html and its figures (PNG and SVG) into a run's directory and return the page's path.

    Needs run.json, scores.csv, significance.csv, metrics.jsonl and, where sentences may be shown,
    translations/. Raises ValueError naming what is missing.
    """
    record = load_run(run_dir)
    scores = load_scores(run_dir / "scores.csv")
    summaries = summarise(record, scores, load_significance(run_dir / "significance.csv"))
    figures = _draw_figures(run_dir, record, scores, summaries)
    for name, figure in figures.items():
        save_figure(figure, run_dir / name)
    page = (
        environment()
        .get_template("report.html.j2")
        .render(
            record=record,
            headline=headline(summaries),
            summaries=summaries,
            means=summarise_means(scores),
            others=[metric for metric in METRICS[1:] if any(row.metric == metric for row in scores)],
            names=_NAMES,
            compared=has_baseline(summaries),
            figures={name: _inline(name, figure, summaries) for name, figure in figures.items()},
            samples=_samples(run_dir, record) if record.sample_sentences else [],
            totals=total_rows(record.systems),
            model_columns=MODEL_COLUMNS,
            models=model_rows(record.systems),
            flops_unit=flops_unit(record.systems),
            data=data_section(run_dir, record),
            config=dict(flatten(record.config)),
            signatures=_signatures(record, scores),
            n=number_format,
            SYSTEM=SYSTEM,
            BASELINE=BASELINE,
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


def _samples(run_dir: Path, record: RunRecord) -> list[Json]:
    """Three sentences a pair, evenly spread over the test set and chosen by place and length alone."""
    systems = [name for name in (SYSTEM, BASELINE) if not record.systems or name in record.systems]
    samples = []
    for pair in record.pairs_by_resource:
        translations = {system: load_translations(run_dir, system, pair) for system in systems}
        first = translations[systems[0]]
        source, target = record.languages[pair]
        sentences = [
            {
                "source": first[place].source,
                "reference": first[place].reference,
                "hypotheses": {system: lines[place].hypothesis for system, lines in translations.items()},
            }
            for place in _sample_places(first)
        ]
        samples.append(
            {
                "pair": pair,
                "source": {"lang": source, "dir": text_direction(source)},
                "target": {"lang": target, "dir": text_direction(target)},
                "sentences": sentences,
            }
        )
    return samples


def _sample_places(lines: Sequence[Translation]) -> list[int]:
    legible = [place for place, line in enumerate(lines) if len(line.reference) in _SAMPLE_CHARACTERS]
    places = legible if len(legible) >= _NUM_SAMPLES else list(range(len(lines)))
    count = min(_NUM_SAMPLES, len(places))
    return [places[(2 * k + 1) * len(places) // (2 * count)] for k in range(count)]


def _signatures(record: RunRecord, scores: Sequence[ScoreRow]) -> list[tuple[str, str, str]]:
    """Rows (metric, signature, pairs that it holds for)."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in scores:
        pairs = found.setdefault((row.metric, row.signature), [])
        if row.pair not in pairs:
            pairs.append(row.pair)
    return [
        (metric, signature, "all pairs" if len(pairs) == len(record.pairs) else ", ".join(pairs))
        for (metric, signature), pairs in sorted(found.items())
    ]
