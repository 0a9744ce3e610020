"""`make plan`: what a recipe needs on devices that need not be there, and how fast and dear its training would be."""

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
from pipeline.parallel.config import layout_of
from pipeline.parallel.legality import cautions, check_sizes
from pipeline.plan import table
from pipeline.plan.config import PAPER, PlanConfig, published
from pipeline.plan.plan import make_plan, workload_of
from pipeline.plan.search import Found, misfit, nearest_fit, search
from pipeline.plan.spread import CUT, DEFAULT, PRESETS, RECOMPUTE, Spread, Table, check, default_ep, divisors, is_legal
from pipeline.plan.workload import Workload

logger = logging.getLogger(__name__)

OTHERS = 3  # groups of other sizes than the recipe's that a search shows


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A recipe on a cluster, spread as the user wants it."""

    workload: Workload
    spread: Spread


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What is said, as text and for JSON, and the plans of the figure by what their bars are called."""

    text: str
    values: dict[str, Any]
    bars: Mapping[str, Found]
    title: str


def plan(config: PlanConfig) -> None:
    """Print it, and draw it: to `out`, or where nothing is asked for but text to a file below runs/plan."""
    found = answer(config)
    say(json.dumps(found.values, indent=1) if config.format == "json" else found.text)
    if not config.out and config.format == "json":
        return
    from eval.figure_style import save_figure
    from pipeline.plan.plot import Bar, plot

    name = f"{config.what}-{config.devices or PAPER}x{config.device.name}{'-search' if config.search else ''}"
    name = re.sub(r"[^\w.-]+", "-", name)
    path = Path(config.out or ROOT / "runs" / "plan" / f"{name}.png")
    path.parent.mkdir(parents=True, exist_ok=True)
    bars = [Bar.of(label, each.plan) for label, each in found.bars.items()]
    save_figure(plot(bars, found.title), path.with_suffix(""), [path.suffix[1:]])
    if config.format == "text":
        say(f"figure: {path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}")


def answer(config: PlanConfig) -> Answer:
    """Raises ValueError with the nearest legal number where something does not divide."""
    if config.search:
        return _search(config)
    return _side_by_side(config) if len(config.recipes) > 1 else _single(config)


def _single(config: PlanConfig) -> Answer:
    asked = _asked(config.recipes[0], config)
    workload, spread = asked.workload, asked.spread
    found = _found(workload, spread, config)
    values, lines = _entry(found), [table.plan_text(found), ""]
    if said := published(workload.recipe):
        lines[1:] = [table.published_text(said), ""]
    if problem := misfit(found.plan.memory):
        better = nearest_fit(workload, spread, config.device)
        nearest = command(config, workload, better) if better else None
        values |= {"does_not_fit": problem, "nearest": nearest}
        lines += [f"does not fit: {problem}", f"nearest that fits: {nearest or 'none; make groups smaller'}"]
    else:
        lines.append(f"to train so: {training(config, workload, spread)}")
    others = [_found(workload, replace(spread, recompute=each), config) for each in RECOMPUTE]
    return Answer(
        text="\n".join(lines),
        values=values,
        bars={f"recompute\n{each.spread.recompute}": each for each in others},
        title=f"{workload.recipe} on {spread.devices} x {config.device.name}",
    )


def _side_by_side(config: PlanConfig) -> Answer:
    """What does not fit as it is asked for is shown as the nearest that does on as many devices."""
    found, entries, notes = list[Found](), list[dict[str, Any]](), list[str]()
    for recipe in config.recipes:
        try:
            asked = _asked(recipe, config)
        except ValueError as error:
            notes.append(f"{recipe}: {error}")
            entries.append({"recipe": recipe, "error": str(error)})
            continue
        each, refused = _found(asked.workload, asked.spread, config), dict[str, str]()
        if problem := misfit(each.plan.memory):
            better = nearest_fit(asked.workload, asked.spread, config.device, more_devices=False)
            each = _found(asked.workload, better, config) if better else each
            refused = {"asked": table.short(asked.spread), "does_not_fit": problem}
            notes.append(f"{recipe}, {refused['asked']}, does not fit: {problem}")
        found.append(each)
        entries.append({**_entry(each), **refused})
    if not found:
        raise ValueError("\n".join(notes))
    return Answer(
        text="\n".join([table.comparison_text(found), *notes]),
        values={"plans": entries},
        bars={f"{each.workload.recipe}\n{each.spread.devices} devices": each for each in found},
        title=f"{config.what} on {config.device.name}",
    )


def _search(config: PlanConfig) -> Answer:
    asked = _asked(config.recipes[0], config, check_it=False)
    workload, devices = asked.workload, asked.spread.devices
    result = search(workload, devices, config.device, {**PRESETS, asked.spread.name: asked.spread.table})
    if not result.found:
        check(workload, asked.spread)
        least = nearest_fit(workload, asked.spread, config.device)
        where = f"; nearest that does: {command(config, workload, least)}" if least else ""
        raise ValueError(f"devices={devices}: none of {result.legal} layouts fits{where}")
    best = result.found[0]
    shown = [*result.found[: config.top], *[each for each in result.other if each.rank < best.rank][:OTHERS]]
    shown.sort(key=lambda each: each.rank)
    fit = f"{len(result.found)} of {result.legal} layouts fit"
    lines = [f"{workload.recipe} on {devices} x {config.device.name}, {workload.precision}: {fit}; the best of them"]
    lines += ["", table.search_text(shown)]
    if not all(each.own for each in shown):
        why = "gates act by group" if workload.model.moe.num_experts else "rows are packed by group"
        lines.append(f"* groups of another size, at the same tokens a step, are another recipe: {why}")
    lines += ["", f"best of this recipe: {command(config, workload, best.spread)}"]
    return Answer(
        text="\n".join(lines),
        values={"plans": [{**_entry(each), "own_groups": each.own} for each in shown]},
        bars={f"{number}: {table.short(each.spread)}": each for number, each in enumerate(shown, 1)},
        title=f"{workload.recipe} on {devices} x {config.device.name}: the best layouts",
    )


def command(config: PlanConfig, workload: Workload, spread: Spread) -> str:
    """What to type for this plan."""
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
    rest = [*config.device_keys, *(word for word in config.overrides if not word.startswith("layout="))]
    if rest:
        words["ARGS"] = shlex.join(rest)
    return "make plan " + " ".join(f"{name}={shlex.quote(value)}" for name, value in words.items())


def training(config: PlanConfig, workload: Workload, spread: Spread) -> str:
    """What to type to train so, where the devices are."""
    layout = spread.layout.sizes
    place = {"processes": spread.devices, "ep": layout["expert"], "mp": layout["model"]}
    keys = [f"runtime.{name}={value}" for name, value in place.items()]
    keys += [f"runtime.zero_stage={spread.zero_stage}", f"runtime.recompute={spread.recompute}"]
    rest = [word for word in config.overrides if not word.startswith("layout=")]
    named = f" LAYOUT={spread.name}" if spread.name != DEFAULT else ""
    if config.device.kind == "cuda" and not any(word.startswith("runtime=") for word in rest):
        named += (
            f" RUNTIME={'gpu' if spread.devices == 1 else 'node' if spread.devices <= config.device.node else 'slurm'}"
        )
    return f"make train RECIPE={workload.recipe}{named} ARGS={shlex.quote(' '.join([*keys, *map(shlex.quote, rest)]))}"


def _asked(recipe: str, config: PlanConfig, *, check_it: bool = True) -> Asked:
    """As the user says, and what nobody says as GShard would: experts over as many devices as divide them, nothing cut
    over a model axis, ZeRO-1, nothing computed again."""
    layout = [f"layout={CUT}"] if not config.layout and (config.mp or 1) > 1 else []
    alone = ["runtime.processes=1", "runtime.ep=1", "runtime.mp=1"]
    run = load_config([f"recipes={recipe}", *layout, *config.overrides, *alone])
    workload = replace(workload_of(run), recipe=recipe)
    cuts = layout_of(run.layout, run.runtime).table
    spread = _spread(recipe, workload, config, cuts)
    if check_it:
        check(workload, spread)
        check_sizes(spread.layout, model=run.model, batch=run.batch, vocab=run.vocab)
        vocabulary = workload.target_vocabulary
        for caution in cautions(spread.layout, model=run.model, shape=workload.shape, target_vocabulary=vocabulary):
            logger.warning("warning: %s", caution)
    return Asked(workload=workload, spread=spread)


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
    devices = config.devices or _of_paper(recipe, workload)
    found = of(config.layout or (DEFAULT if mp == 1 else CUT), cuts, mp)
    if config.devices or config.mp or config.layout or is_legal(workload, found):
        return found
    # A dense model of a paper that had more devices than groups: cut over as few as will do
    others = (of(CUT, PRESETS[CUT], mp) for mp in divisors(devices) if mp > 1)
    return next((other for other in others if is_legal(workload, other)), found)


def _of_paper(recipe: str, workload: Workload) -> int:
    """As many devices as the paper had cores; where it does not say, as many as a layer has experts."""
    found = int(published(recipe).get("cores", workload.model.moe.num_experts))
    if not found:
        raise ValueError(
            f"devices={PAPER}: no number of devices is published of {recipe}, which has no experts; give DEVICES=8"
        )
    return found


def _found(workload: Workload, spread: Spread, config: PlanConfig) -> Found:
    return Found(workload=workload, spread=spread, plan=make_plan(workload, spread.setup, config.device), own=True)


def _entry(found: Found) -> dict[str, Any]:
    said = published(found.workload.recipe)
    return {**found.plan.to_json(), **({"published": said} if said else {})}
