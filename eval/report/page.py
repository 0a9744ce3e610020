"""The page report.html of one run or several. It is one self-contained file from the plain files of the runs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path

from markupsafe import Markup
from matplotlib.figure import Figure

from eval import number_format
from eval.language import pair_labels
from eval.records.ending import unfinished_systems
from eval.records.faults import LANGUAGE
from eval.records.results import RunResults, System, group_seeds
from eval.records.run_record import Json, LossPoint, load_losses
from eval.records.scores import BASELINE, SYSTEM
from eval.report.browser import write_browser, write_further_browsers
from eval.report.comparison import Difference, differences, settings
from eval.report.findings import headline_of, left_open, mean_intervals, metric_means, without_verdict
from eval.report.plots.faults import plot_faults
from eval.report.plots.loss import LossSeries, plot_loss, plot_losses
from eval.report.plots.loss_levels import lowest_loss, round_levels
from eval.report.plots.sample_scores import is_scored, plot_sample_scores
from eval.report.plots.scores import correlations, plot_bleu_by_resource, plot_trendline
from eval.report.plots.style import inline_svg, save_figure
from eval.report.plots.trendline import FEWEST_TO_FIT
from eval.report.sections.augmentation import augmented_rows
from eval.report.sections.challenge import challenge_section
from eval.report.sections.cost import (
    FlopsGroup,
    bilingual_rows,
    cost_groups,
    level_column,
    level_name,
    save_sweep,
    score_column,
)
from eval.report.sections.data import data_section
from eval.report.sections.fault_tables import ANY, ComparedFaults
from eval.report.sections.faults import fault_points, faults_section
from eval.report.sections.further_tests import further_tests_section
from eval.report.sections.ledger import MODEL_COLUMNS, flops_unit, model_rows, total_rows
from eval.report.sections.routing import routing_section
from eval.report.sections.score_points import Points, points_of
from eval.report.sections.scores import scores_section
from eval.report.sections.sentences import sentences_section
from eval.report.summary import ensemble_sentence, headline, summarise, unfinished_sentence
from eval.report.templating import environment
from eval.score.macro import ALL, THIRDS, resource_classes

Losses = Mapping[str, Sequence[LossPoint]]
Figures = dict[str, tuple[Figure, str]]  # figures with their descriptions, by name


def write_report(out: Path, runs: Sequence[RunResults], losses: Sequence[float] = ()) -> Path:
    """Write report.html, its figures (PNG and SVG) and sweep.csv into a directory, and return the page's path.

    out: the directory, which is made if it does not exist.
    runs: each needs metrics.jsonl, and translations/ if its sentences may be shown.
    losses: training losses; the report counts the tokens that each run needs to reach them. Empty: three round losses.
    Raises ValueError for a missing file, before anything is written.
    """
    if not runs:
        raise ValueError("runs=[] leaves nothing to report; name one run at least")
    train = {run.label: load_losses(run.directory, "train") for run in runs}
    validation = {run.label: load_losses(run.directory, "validation") for run in runs}
    lowest = [loss for points in train.values() if (loss := lowest_loss(points)) is not None]
    levels = tuple(sorted(losses, reverse=True)) or round_levels(lowest)
    groups = cost_groups(group_seeds(runs), train, validation, levels)
    if len(runs) == 1:  # the page calls its model by what it is; sweep.csv has the run's name
        (name,), runs = [run.label for run in runs], [replace(runs[0], label=runs[0].description)]
        train, validation = ({runs[0].label: by_label[name]} for by_label in (train, validation))
    systems = group_seeds(runs)
    bilingual = bilingual_rows(runs)
    context = {
        "title": runs[0].record.name if len(runs) == 1 else out.resolve().name,
        "record": runs[0].record,
        "runs": runs,
        "systems": systems,
        "several": len(runs) > 1,
        "seeded": any(len(system.runs) > 1 for system in systems),
        "all_seeded": all(len(system.runs) > 1 for system in systems),
        "gained": any(rows[0].numbers["delta_bleu"] is not None for group in groups for rows in group.systems),
        "differences": differences(runs),
        "groups": groups,
        "bilingual": bilingual,
        "levels": levels,
        "level_column": level_column,
        "level_name": level_name,
        "score_column": score_column,
        "resources": _resources(runs),
        **_ledgers(runs),
        **_provenance(runs),
        "sentences": sentences_section(runs),
        "further": further_tests_section(runs),
        "augmented": augmented_rows(runs),
        "challenge": challenge_section(runs),
        "hidden": [run.label for run in runs if not run.record.show],
        "n": number_format,
    }
    out.mkdir(parents=True, exist_ok=True)
    save_sweep(out / "sweep.csv", groups, bilingual, levels)
    context["scores"] = scores_section(out, systems)
    context |= _findings(runs, groups, context["scores"], context["differences"])
    points = points_of(context["scores"]["tables"], context["scores"]["reference"], runs)
    boundaries = sorted({rows for run in runs for rows in run.record.baseline_boundaries})
    context["boundaries"] = boundaries
    context["fitted"] = any(len(gains) >= FEWEST_TO_FIT for gains in (*points.gains.values(), *points.against.values()))
    context["faults"] = faults_section(systems)
    figures = _draw_scores(points, boundaries) | _draw_losses(systems, train, validation)
    figures |= _draw_faults(context["faults"]["compared"], runs) if context["faults"] else {}
    context["figures"] = _save_figures(out, figures)
    context["correlations"] = correlations(points.all_scores)
    context["routing"] = routing_section(out, runs)
    context["data"] = data_section(out, runs[0].record)
    write_browser(out, runs, str(context["title"]))
    write_further_browsers(out, context["further"]["tests"] if context["further"] else (), str(context["title"]))
    page = environment().get_template("report.html.j2").render(context)
    partial = out / "report.html.partial"
    partial.write_text(page, encoding="utf-8")
    return partial.replace(out / "report.html")  # a sweep may end this process, and must not leave half a page


def _findings(
    runs: Sequence[RunResults], groups: Sequence[FlopsGroup], scores: Json, unequal: Sequence[Difference]
) -> Json:
    """Return the sentences at the top of the page: the headline, and what it leaves open (empty for one run)."""
    if len(runs) == 1:
        return {"headline": headline(summarise(runs[0])) + ensemble_sentence(runs[0].record), "left_open": ""}
    if len({frozenset(run.record.pairs) for run in runs}) > 1:
        text = f"{len(runs)} runs of different language pairs, whose mean scores do not compare."
        return {"headline": text, "left_open": ""}
    cut_off = {(run.label, p): unfinished_systems(run.record.systems, p) for run in runs for p in run.record.pairs}
    record = runs[0].record
    with_baseline = [pair for pair in record.pairs if BASELINE in record.systems_of(pair)]
    baselines = [any(BASELINE in cut_off[run.label, pair] for run in runs) for pair in with_baseline]
    models = {run.label: any(SYSTEM in cut_off[run.label, pair] for pair in run.record.pairs) for run in runs}
    compared = scores["tables"], scores["reference"] or ""
    intervals = mean_intervals(*compared)
    num_pairs, other_metrics = len(record.pairs), metric_means(*compared)
    text = headline_of(groups, num_pairs, intervals, other_metrics, num_baselines=len(with_baseline))
    text += unfinished_sentence(baselines, models)
    for run in (run for run in runs if run.record.ensemble):
        text += (
            f" {run.label} translates together with the models of {', '.join(run.record.ensemble)}, at the cost of all."
        )
    return {"headline": text, "left_open": left_open(groups, intervals, unequal, without_verdict(scores["tables"]))}


def _resources(runs: Sequence[RunResults]) -> list[tuple[str, int]]:
    """Return the resource classes with their numbers of pairs, `all` first."""
    classes = resource_classes(runs[0].record.train_pairs)
    return [(name, len(classes[name])) for name in (ALL, *THIRDS) if name in classes]


def _ledgers(runs: Sequence[RunResults]) -> Json:
    """Return the tables of costs. Baselines that several runs share are listed once."""
    ledgers: dict[str, Sequence[Json]] = {}
    for run in runs:
        for name, models in run.record.systems.items():
            label = run.label if name == SYSTEM else name if name not in ledgers else f"{name} of {run.label}"
            if all(_artifacts(models) != _artifacts(listed) for listed in ledgers.values()):
                ledgers[label] = models
    return {
        "totals": total_rows(ledgers),
        "ledger_names": list(ledgers),
        "model_columns": MODEL_COLUMNS,
        "models": model_rows(ledgers),
        "flops_unit": flops_unit(ledgers),
    }


def _artifacts(ledgers: Sequence[Json]) -> list[object]:
    """Return what identifies the models of the ledgers."""
    return [(ledger.get("artifacts") or {}).get("model") or ledger for ledger in ledgers]


def _provenance(runs: Sequence[RunResults]) -> Json:
    configs = {
        run.label: {key: value for key, value in run.record.config.items() if key not in ("name", "recipe")}
        for run in runs
    }
    return {
        "config": settings(configs),
        "environment": settings({run.label: run.record.environment for run in runs}),
    }


def _save_figures(out: Path, figures: Figures) -> dict[str, Markup]:
    """Save every figure, and return the figures as elements of the page."""
    for name, (figure, _) in figures.items():
        save_figure(figure, out / name)
    return {
        name: Markup(inline_svg(figure, name, escape(description, quote=True)))
        for name, (figure, description) in figures.items()
    }


def _draw_scores(points: Points, boundaries: Sequence[int]) -> Figures:
    """Draw the figures of scores. boundaries: training pairs at which the settings of the baselines change."""
    n = number_format
    figures: Figures = {}
    for name, gains, over in (
        ("trendline", points.gains, ""),
        ("trendline_over_reference", points.against, points.reference),
    ):
        if any(gains.values()):
            texts = [
                f"{label}: {', '.join(f'{p.pair} {n.signed(p.delta)}' for p in system)}"
                for label, system in gains.items()
            ]
            description = f"BLEU gained over {over or 'the bilingual baselines'}, by decreasing training data. "
            marked = () if over else boundaries
            figures[name] = (plot_trendline(gains, over, marked), description + "; ".join(texts))
    texts = [
        f"{label}: {', '.join(f'{p.label} {n.decimal(p.score)} at {p.train_pairs:,}' for p in system)}"
        for label, system in points.all_scores.items()
    ]
    description = f"BLEU against training pairs. {'; '.join(texts)}"
    marked = boundaries if points.baseline else ()
    figures["bleu_vs_resource"] = (plot_bleu_by_resource(points.scores, points.baseline, marked), description)
    return figures


def _draw_faults(compared: ComparedFaults, runs: Sequence[RunResults]) -> Figures:
    """Draw the shares of all faults and of wrong languages, each where a system has surely more than the references."""
    figures: Figures = {}
    for name, fault in (("faults_by_resource", ANY), ("wrong_language_by_resource", LANGUAGE)):
        if (shares := fault_points(compared, runs, fault)) is not None:
            figures[name] = (plot_faults(shares), f"Share of {shares.what} by training pairs.")
    return figures


def _draw_losses(systems: Sequence[System], train: Losses, validation: Losses) -> Figures:
    series = [
        LossSeries(system=system.label, train=train[run.label], validation=validation[run.label])
        for system in systems
        for run in system.runs
    ]
    description = "Training and validation cross-entropy of {} against {}"
    record = systems[0].runs[0].record
    labels = pair_labels(record.pairs, record.languages)
    if len(series) == 1:
        by_tokens = plot_loss(series[0].train, series[0].validation, labels)
    else:
        by_tokens = plot_losses(series, "tokens")
    names = ", ".join(system.label for system in systems)
    figures = {"loss": (by_tokens, description.format(names, "target tokens seen"))}
    if any(point.seconds for run in series for point in (*run.train, *run.validation)):
        figures["loss_time"] = (plot_losses(series, "time"), description.format(names, "training time"))
    if is_scored(series):
        description = f"Scores of translations of development sentences by {names} against target tokens seen"
        figures["validation_score"] = (plot_sample_scores(series, labels), description)
    return figures
