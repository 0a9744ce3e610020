"""report.html of one run or several: one self-contained file from the plain files of their directories."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from markupsafe import Markup
from matplotlib.figure import Figure

from eval import number_format
from eval.comparison import differences, headline_of, settings
from eval.cost_table import (
    FlopsGroup,
    bilingual_rows,
    cost_groups,
    level_column,
    level_name,
    save_sweep,
    score_column,
)
from eval.data_section import data_section
from eval.figure_style import inline_svg, save_figure
from eval.language import pair_labels
from eval.ledger import MODEL_COLUMNS, flops_unit, model_rows, total_rows
from eval.loss_levels import lowest_loss, round_levels
from eval.loss_plot import LossSeries, plot_loss, plot_losses
from eval.macro import ALL, THIRDS, resource_classes
from eval.pages import environment
from eval.plots import correlations, plot_bleu_by_resource, plot_trendline
from eval.results import RunResults, System, group_seeds
from eval.routing_section import routing_section
from eval.run_record import Json, LossPoint, load_losses
from eval.scores import SYSTEM
from eval.scores_section import scores_section
from eval.sentences_section import sentences_section
from eval.summary import headline, summarise
from eval.system_points import Points, points_of

Losses = Mapping[str, Sequence[LossPoint]]
Drawn = dict[str, tuple[Figure, str]]  # with its description


def write_report(out: Path, runs: Sequence[RunResults], losses: Sequence[float] = ()) -> Path:
    """Write report.html, its figures (PNG and SVG) and sweep.csv into a directory and return the page's path.

    losses: training losses to count tokens to; by themselves three round ones. Every run needs metrics.jsonl and, where
    sentences may be shown, translations/. Raises ValueError naming what is missing, before anything is written.
    """
    if not runs:
        raise ValueError("runs=[] leaves nothing to report; name one run at least")
    train = {run.label: load_losses(run.directory, "train") for run in runs}
    validation = {run.label: load_losses(run.directory, "validation") for run in runs}
    lowest = [loss for points in train.values() if (loss := lowest_loss(points)) is not None]
    levels = tuple(sorted(losses, reverse=True)) or round_levels(lowest)
    systems = group_seeds(runs)
    groups = cost_groups(systems, train, levels)
    bilingual = bilingual_rows(runs)
    context = {
        "title": runs[0].record.name if len(runs) == 1 else out.resolve().name,
        "headline": _headline(runs, groups),
        "record": runs[0].record,
        "runs": runs,
        "systems": systems,
        "several": len(runs) > 1,
        "seeded": any(len(system.runs) > 1 for system in systems),
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
        "n": number_format,
    }
    out.mkdir(parents=True, exist_ok=True)
    save_sweep(out / "sweep.csv", groups, bilingual, levels)
    context["scores"] = scores_section(out, systems)
    points = points_of(context["scores"]["tables"], context["scores"]["reference"], runs)
    context["figures"] = _figures(out, _draw_scores(points) | _draw_losses(systems, train, validation))
    context["correlations"] = correlations(points.all_scores)
    context["routing"] = routing_section(out, runs)
    context["data"] = data_section(out, runs[0].record)
    page = environment().get_template("report.html.j2").render(context)
    partial = out / "report.html.partial"
    partial.write_text(page, encoding="utf-8")
    return partial.replace(out / "report.html")  # whole or not at all: a sweep ends a page that another overtakes


def _headline(runs: Sequence[RunResults], groups: Sequence[FlopsGroup]) -> str:
    if len(runs) == 1:
        return headline(summarise(runs[0].record, runs[0].scores, runs[0].gains))
    if len({frozenset(run.record.pairs) for run in runs}) > 1:
        return f"{len(runs)} runs of different language pairs, whose mean scores do not compare."
    return headline_of(groups, len(runs[0].record.pairs))


def _resources(runs: Sequence[RunResults]) -> list[tuple[str, int]]:
    """Resource classes of the pairs, all of them first, with their numbers of pairs."""
    classes = resource_classes(runs[0].record.train_pairs)
    return [(name, len(classes[name])) for name in (ALL, *THIRDS) if name in classes]


def _ledgers(runs: Sequence[RunResults]) -> Json:
    """The costs of every model; of several runs that have the same baselines, those are listed once."""
    ledgers: dict[str, Sequence[Json]] = {}
    for run in runs:
        for name, models in run.record.systems.items():
            label = run.label if name == SYSTEM else name if name not in ledgers else f"{name} of {run.label}"
            if all(_trained(models) != _trained(other) for other in ledgers.values()):
                ledgers[label] = models
    return {
        "totals": total_rows(ledgers),
        "ledger_names": list(ledgers),
        "model_columns": MODEL_COLUMNS,
        "models": model_rows(ledgers),
        "flops_unit": flops_unit(ledgers),
    }


def _trained(ledgers: Sequence[Json]) -> list[object]:
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


def _figures(out: Path, drawn: Drawn) -> dict[str, Markup]:
    """Save every figure and give it as an element of the page."""
    for name, (figure, _) in drawn.items():
        save_figure(figure, out / name)
    return {
        name: Markup(inline_svg(figure, name, escape(description, quote=True)))
        for name, (figure, description) in drawn.items()
    }


def _draw_scores(points: Points) -> Drawn:
    n = number_format
    drawn: Drawn = {}
    for name, found, over in (
        ("trendline", points.gains, ""),
        ("trendline_over_reference", points.against, points.reference),
    ):
        if any(found.values()):
            said = [f"{label}: {', '.join(f'{p.pair} {n.signed(p.delta)}' for p in of)}" for label, of in found.items()]
            description = f"BLEU gained over {over or 'the bilingual baselines'}, by decreasing training data. "
            drawn[name] = (plot_trendline(found, over), description + "; ".join(said))
    told = [
        f"{name}: {', '.join(f'{p.label} {n.decimal(p.score)} at {p.train_pairs:,}' for p in of)}"
        for name, of in points.all_scores.items()
    ]
    description = f"BLEU against training pairs. {'; '.join(told)}"
    drawn["bleu_vs_resource"] = (plot_bleu_by_resource(points.scores, points.baseline), description)
    return drawn


def _draw_losses(systems: Sequence[System], train: Losses, validation: Losses) -> Drawn:
    series = [
        LossSeries(system=system.label, train=train[run.label], validation=validation[run.label])
        for system in systems
        for run in system.runs
    ]
    described = "Training and validation cross-entropy of {} against {}"
    if len(series) == 1:
        record = systems[0].runs[0].record
        by_tokens = plot_loss(series[0].train, series[0].validation, pair_labels(record.pairs, record.languages))
    else:
        by_tokens = plot_losses(series, "tokens")
    names = ", ".join(system.label for system in systems)
    drawn = {"loss": (by_tokens, described.format(names, "target tokens seen"))}
    if any(point.seconds for each in series for point in (*each.train, *each.validation)):
        drawn["loss_time"] = (plot_losses(series, "time"), described.format(names, "training time"))
    return drawn
