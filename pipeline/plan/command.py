"""`make plan`: the memory, time and money that training a recipe takes on devices that you may not have."""

import json
import logging
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.config import ROOT, load_config
from pipeline.output import say
from pipeline.parallel.layout import layout_of
from pipeline.parallel.legality import cautions, check_sizes, node_cautions
from pipeline.plan import table
from pipeline.plan.config import PAPER, PlanConfig, published
from pipeline.plan.plan import make_plan, workload_of
from pipeline.plan.search import Candidate, misfit, nearest_fit, search
from pipeline.plan.spread import CUT, DEFAULT, PRESETS, RECOMPUTE, Spread, Table, check, default_ep, divisors, is_legal
from pipeline.plan.workload import Workload
from pipeline.train.components import check_components

logger = logging.getLogger(__name__)

NUM_OTHER_SIZES = 3  # rows of groups of other sizes than the recipe's that a search shows


@dataclass(frozen=True, kw_only=True)
class Request:
    """A recipe, and the spread that the user asks for."""

    workload: Workload
    spread: Spread


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer of `make plan`.

    text: the answer as text.
    values: the answer as JSON.
    bars: the plans in the figure, by the label of their bar.
    title: the title of the figure.
    misfit: what does not fit, with a remedy; empty if everything that is shown fits.
    """

    text: str
    values: dict[str, Any]
    bars: Mapping[str, Candidate]
    title: str
    misfit: str = ""


def plan(config: PlanConfig) -> None:
    """Print the plan, and draw it to `out`. Text without `out` comes with a figure in runs/plan.

    Raises ValueError at the end if the plan does not fit, so that the command fails.
    """
    result = answer(config)
    say(json.dumps(result.values, indent=1) if config.format == "json" else result.text)
    if config.out or config.format == "text":
        _draw(config, result)
    if result.misfit:
        raise ValueError(result.misfit)


def _draw(config: PlanConfig, result: Answer) -> None:
    from eval.report.plots.style import save_figure
    from pipeline.plan.plot import Bar, plot

    name = f"{config.what}-{config.devices or PAPER}x{config.device.name}{'-search' if config.search else ''}"
    name = re.sub(r"[^\w.-]+", "-", name)
    path = Path(config.out or ROOT / "runs" / "plan" / f"{name}.png")
    path.parent.mkdir(parents=True, exist_ok=True)
    bars = [Bar.of(label, candidate.plan) for label, candidate in result.bars.items()]
    save_figure(plot(bars, result.title), path.with_suffix(""), [path.suffix[1:]])
    if config.format == "text":
        say(f"figure: {path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}")


def answer(config: PlanConfig) -> Answer:
    """Compute the answer. Raises ValueError with the nearest legal number if something does not divide."""
    if config.search:
        return _search(config)
    return _side_by_side(config) if len(config.recipes) > 1 else _single(config)


def _single(config: PlanConfig) -> Answer:
    request = _request(config.recipes[0], config)
    workload, spread = request.workload, request.spread
    candidate = _candidate(workload, spread, config)
    values, lines, error = _values(candidate), [table.plan_text(candidate), ""], ""
    title = f"{workload.recipe} on {spread.devices} x {config.device.name}"
    if figures := published(workload.recipe):
        lines[1:] = [table.published_text(figures), ""]
    if problem := misfit(candidate.plan.memory):
        better = nearest_fit(workload, spread, config.device)
        nearest = command(config, workload, better) if better else None
        values |= {"does_not_fit": problem, "nearest": nearest}
        remedy = f"nearest that fits: {nearest or 'none; make groups smaller'}"
        lines += [f"does not fit: {problem}", remedy]
        error = f"{title} does not fit; {remedy}"
    else:
        lines.append(f"to train so: {training(config, workload, spread)}")
    variants = [_candidate(workload, replace(spread, recompute=name), config) for name in RECOMPUTE]
    return Answer(
        text="\n".join(lines),
        values=values,
        bars={f"recompute\n{variant.spread.recompute}": variant for variant in variants},
        title=title,
        misfit=error,
    )


def _side_by_side(config: PlanConfig) -> Answer:
    """Compare recipes. If one does not fit, the nearest spread that fits on as many devices takes its place."""
    candidates, values, notes, without_fit = list[Candidate](), list[dict[str, Any]](), list[str](), list[str]()
    for recipe in config.recipes:
        try:
            request = _request(recipe, config)
        except ValueError as error:
            notes.append(f"{recipe}: {error}")
            values.append({"recipe": recipe, "error": str(error)})
            continue
        candidate, misfits = _candidate(request.workload, request.spread, config), dict[str, str]()
        if problem := misfit(candidate.plan.memory):
            better = nearest_fit(request.workload, request.spread, config.device, more_devices=False)
            candidate = _candidate(request.workload, better, config) if better else candidate
            without_fit += [] if better else [recipe]
            misfits = {"asked": table.short(request.spread), "does_not_fit": problem}
            notes.append(f"{recipe}, {misfits['asked']}, does not fit: {problem}")
        candidates.append(candidate)
        values.append({**_values(candidate), **misfits})
    if not candidates:
        raise ValueError("\n".join(notes))
    return Answer(
        text="\n".join([table.comparison_text(candidates), *notes]),
        values={"plans": values},
        bars={f"{row.workload.recipe}\n{row.spread.devices} devices": row for row in candidates},
        title=f"{config.what} on {config.device.name}",
        misfit=f"no layout of as many devices fits {', '.join(without_fit)}; give more DEVICES" if without_fit else "",
    )


def _search(config: PlanConfig) -> Answer:
    request = _request(config.recipes[0], config, check_it=False)
    workload, devices = request.workload, request.spread.devices
    result = search(workload, devices, config.device, {**PRESETS, request.spread.name: request.spread.table})
    if not result.fitting:
        check(workload, request.spread)
        nearest = nearest_fit(workload, request.spread, config.device)
        remedy = f"; nearest that does: {command(config, workload, nearest)}" if nearest else ""
        raise ValueError(f"devices={devices}: none of {result.num_legal} layouts fits{remedy}")
    best = result.fitting[0]
    faster = [candidate for candidate in result.other_sizes if candidate.rank < best.rank]
    rows = [*result.fitting[: config.top], *faster[:NUM_OTHER_SIZES]]
    rows.sort(key=lambda candidate: candidate.rank)
    fit = f"{len(result.fitting)} of {result.num_legal} layouts fit"
    lines = [f"{workload.recipe} on {devices} x {config.device.name}, {workload.precision}: {fit}; the best of them"]
    lines += ["", table.search_text(rows)]
    if not all(candidate.own_groups for candidate in rows):
        why = "gates act by group" if workload.model.moe.num_experts else "rows are packed by group"
        lines.append(f"* groups of another size, at the same tokens a step, are another recipe: {why}")
    lines += ["", f"best of this recipe: {command(config, workload, best.spread)}"]
    return Answer(
        text="\n".join(lines),
        values={"plans": [{**_values(candidate), "own_groups": candidate.own_groups} for candidate in rows]},
        bars={f"{number}: {table.short(candidate.spread)}": candidate for number, candidate in enumerate(rows, 1)},
        title=f"{workload.recipe} on {devices} x {config.device.name}: the best layouts",
    )


def command(config: PlanConfig, workload: Workload, spread: Spread) -> str:
    """Return the command that prints this plan."""
    words = {"RECIPE": workload.recipe, "DEVICES": str(spread.devices), "DEVICE": config.device_name}
    if spread.name != (DEFAULT if spread.mp == 1 else CUT):
        words["LAYOUT"] = spread.name
    if spread.mp > 1:
        words["MP"] = str(spread.mp)
    if spread.ep != default_ep(workload, spread.table, spread.devices // spread.mp):
        words["EP"] = str(spread.ep)
    if spread.zero_stage != 1:
        words["ZERO"] = str(spread.zero_stage)
    if spread.recompute != "none":
        words["RECOMPUTE"] = spread.recompute
    overrides = [*config.device_keys, *(word for word in config.overrides if not word.startswith("layout="))]
    if overrides:
        words["ARGS"] = shlex.join(overrides)
    return "make plan " + " ".join(f"{name}={shlex.quote(value)}" for name, value in words.items())


def training(config: PlanConfig, workload: Workload, spread: Spread) -> str:
    """Return the command that trains according to this plan."""
    layout = spread.layout.sizes
    sizes = {"processes": spread.devices, "ep": layout["expert"], "mp": layout["model"]}
    keys = [f"runtime.{name}={value}" for name, value in sizes.items()]
    keys += [f"runtime.zero_stage={spread.zero_stage}", f"runtime.recompute={spread.recompute}"]
    overrides = [word for word in config.overrides if not word.startswith("layout=")]
    words = f" LAYOUT={spread.name}" if spread.name != DEFAULT else ""
    if config.device.kind == "cuda" and not any(word.startswith("runtime=") for word in overrides):
        runtime = "gpu" if spread.devices == 1 else "node" if spread.devices <= config.device.node else "slurm"
        words += f" RUNTIME={runtime}"
    args = shlex.quote(" ".join([*keys, *map(shlex.quote, overrides)]))
    return f"make train RECIPE={workload.recipe}{words} ARGS={args}"


def _request(recipe: str, config: PlanConfig, *, check_it: bool = True) -> Request:
    """Return the request of the user.

    The defaults are those of GShard: experts over as many devices as divide them, no model axis, ZeRO-1, no
    recomputation.
    """
    layout = [f"layout={CUT}"] if not config.layout and (config.mp or 1) > 1 else []
    one_process = ["runtime.processes=1", "runtime.ep=1", "runtime.mp=1"]
    device = f"runtime.device={'cuda' if config.device.kind == 'cuda' else 'cpu'}"  # it decides the default precision
    run = load_config([f"recipes={recipe}", device, *layout, *config.overrides, *one_process])
    workload = replace(workload_of(run), recipe=recipe)
    cuts = layout_of(run.layout, run.runtime).table
    spread = _spread(recipe, workload, config, cuts)
    if check_it:
        check(workload, spread)
        check_sizes(spread.layout, model=run.model, batch=run.batch, vocab=run.vocab)
        check_components(run.train, run.model, spread.layout)
        vocabulary = workload.target_vocabulary
        for caution in cautions(spread.layout, model=run.model, shape=workload.shape, target_vocabulary=vocabulary):
            logger.warning("warning: %s", caution)
        for caution in node_cautions(spread.layout, model=run.model, node=config.device.node):
            logger.warning("warning: %s", caution)
    return Request(workload=workload, spread=spread)


def _spread(recipe: str, workload: Workload, config: PlanConfig, cuts: Table) -> Spread:
    def of(name: str, cuts: Table, mp: int) -> Spread:
        return Spread(
            name=name,
            table=cuts,
            devices=devices,
            ep=config.ep or default_ep(workload, cuts, devices // mp),
            mp=mp,
            zero_stage=config.zero_stage,
            recompute=config.recompute,
        )

    mp = config.mp or 1
    devices = config.devices or _devices_of_paper(recipe, workload)
    spread = of(config.layout or (DEFAULT if mp == 1 else CUT), cuts, mp)
    if config.devices or config.mp or config.layout or is_legal(workload, spread):
        return spread
    # The paper had more devices than groups: cut the model over as few devices as possible
    cut_spreads = (of(CUT, PRESETS[CUT], mp) for mp in divisors(devices) if mp > 1)
    return next((candidate for candidate in cut_spreads if is_legal(workload, candidate)), spread)


def _devices_of_paper(recipe: str, workload: Workload) -> int:
    """Return the number of cores in the paper, or the number of experts in a layer if the paper gives none."""
    devices = int(published(recipe).get("cores", workload.model.moe.num_experts))
    if not devices:
        raise ValueError(
            f"devices={PAPER}: no number of devices is published of {recipe}, which has no experts; give DEVICES=8"
        )
    return devices


def _candidate(workload: Workload, spread: Spread, config: PlanConfig) -> Candidate:
    plan = make_plan(workload, spread.setup, config.device)
    return Candidate(workload=workload, spread=spread, plan=plan, own_groups=True)


def _values(candidate: Candidate) -> dict[str, Any]:
    """Return a plan as JSON, with the published figures."""
    figures = published(candidate.workload.recipe)
    return {**candidate.plan.to_json(), **({"published": figures} if figures else {})}
