"""Plans as text: one in full, several side by side with their papers' figures, and the result of a search."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from eval.number_format import MISSING, duration, integer, quantity
from eval.text_table import aligned
from pipeline.plan.config import published
from pipeline.plan.memory import memory, phases
from pipeline.plan.plan import TrainingPlan
from pipeline.plan.search import MEMORY_PARTS, Candidate, gib
from pipeline.plan.spread import PRESETS, RECOMPUTE, STAGES, Spread

YEAR = 24 * 365.25  # hours
_COMPARED = (
    *("recipe", "devices", "ep", "mp", "ZeRO", "recompute", "GiB", "parameters", "steps/s", "tokens/s", "MFU"),
    *("all-to-all", "device years", "days", "cost"),
)
_IN_HOURS = tuple("device hours" if column == "device years" else column for column in _COMPARED)
_SEARCHED = (
    *("", "layout", "data", "ep", "mp", "ZeRO", "recompute", "rows", "GiB", "step", "tokens/s", "MFU", "days"),
    "cost",
)


def plan_text(candidate: Candidate) -> str:
    """Return everything that is known about one plan."""
    plan = candidate.plan
    parts = [_heading(candidate), _parameters(plan), _memory(candidate), _flops(plan), _collectives(plan), _step(plan)]
    parts.append(_budget(plan))
    return "\n\n".join(part for part in parts if part)


def spread_words(spread: Spread) -> str:
    """Return the layout, ZeRO stage and recomputation of a spread as a line."""
    sizes = spread.layout.sizes
    axes = " x ".join(f"{axis} {size}" for axis, size in sizes.items())
    changed = "" if spread.table == PRESETS.get(spread.name) else ", changed"
    return f"layout {spread.name}{changed} ({axes}), ZeRO {spread.zero_stage}, recompute {spread.recompute}"


def short(spread: Spread) -> str:
    """Return the same in few words."""
    mp = f" mp {spread.mp}" if spread.mp > 1 else ""
    return f"{spread.name} ep {spread.ep}{mp} ZeRO {spread.zero_stage}, {spread.recompute}"


def comparison_text(candidates: Sequence[Candidate]) -> str:
    """Return a table with a row for each recipe, and its published figures below that row.

    Published figures are in device years. Without them the table has device hours.
    """
    papers = [published(candidate.workload.recipe) for candidate in candidates]
    in_years = any(papers)
    rows: list[Sequence[str]] = [_COMPARED if in_years else _IN_HOURS]
    for candidate, figures in zip(candidates, papers, strict=True):
        rows += [_compared(candidate, in_years=in_years), *([_published(figures)] if figures else [])]
    return aligned(rows, left=(0, 5))


def search_text(candidates: Sequence[Candidate]) -> str:
    """Return a table of candidates. A star marks groups of another size than the recipe's."""
    rows: list[Sequence[str]] = [_SEARCHED]
    for number, candidate in enumerate(candidates, 1):
        spread, plan = candidate.spread, candidate.plan
        rows.append(
            (
                str(number),
                spread.name,
                str(spread.layout.sizes["data"]),
                str(spread.ep),
                str(spread.mp),
                str(spread.zero_stage),
                spread.recompute,
                f"{candidate.workload.shape.rows}{'' if candidate.own_groups else '*'}",
                gib(plan.memory.total),
                time(plan.step.seconds),
                integer(plan.step.tokens_per_second),
                percent(plan.step.mfu),
                days(plan.budget.days),
                dollars(plan.budget.cost),
            )
        )
    return aligned(rows, left=(1, 6))


def time(seconds: float) -> str:
    """Format a time with three digits, in seconds or milliseconds."""
    return f"{seconds:.2f} s" if seconds >= 0.9995 else f"{1000 * seconds:.3g} ms"


def percent(share: float) -> str:
    """Format a share as per cent."""
    return f"{100 * share:.1f} %"


def days(number: float) -> str:
    """Format days in tenths, or less than a tenth of a day as hours, minutes or seconds."""
    return f"{number:,.1f}" if number >= 0.095 or not number else duration(86400 * number)


def device_hours(hours: float) -> str:
    """Format hours of all devices together with two digits or more."""
    return integer(hours) if hours >= 10 else f"{hours:.2g}"


def dollars(cost: float) -> str:
    """Format US dollars."""
    return f"${integer(cost)}" if cost >= 100 else f"${cost:.2f}" if cost else MISSING


def count(number: float) -> str:
    """Format a large number with a letter for its size, such as 619G."""
    return quantity(number).replace(" ", "")


def _heading(candidate: Candidate) -> str:
    workload, layout = candidate.workload, candidate.spread.layout
    shape, groups = workload.shape, workload.groups_per_step
    parts = layout.parts(layout.batch_axes)
    return (
        f"{workload.recipe} on {candidate.spread.devices} x {candidate.plan.device.name}, {workload.precision}\n"
        f"{spread_words(candidate.spread)}\n"
        f"a step of {integer(groups * shape.rows * shape.target)} target tokens: {groups} groups of {shape.rows} rows "
        f"of {shape.source} + {shape.target}, {groups // parts} for each of {parts} process{'es' if parts > 1 else ''}"
    )


def _parameters(plan: TrainingPlan) -> str:
    numbers = plan.parameters
    return aligned(
        [
            ("parameters", "total", "active", "replicated", "experts", "per device"),
            ("", *map(count, (numbers.total, numbers.active, numbers.replicated, numbers.experts, numbers.per_device))),
        ]
    )


def _memory(candidate: Candidate) -> str:
    """Return tables of the memory by part at the peak, and by ZeRO stage and recomputation."""
    peak, spread, device = candidate.plan.memory, candidate.spread, candidate.plan.device
    parts = [(part, getattr(peak, part)) for part in MEMORY_PARTS if getattr(peak, part)]
    rows = [(f"GiB at the peak, in {peak.phase}", *(part for part, _ in parts), "in all", "of")]
    rows.append(("", *(gib(size) for _, size in parts), gib(peak.total), gib(peak.available)))
    matrix: list[Sequence[str]] = [("recompute", "gradients", "optimizer", *RECOMPUTE)]
    activations = [
        max(phase.activations for phase in phases(candidate.workload, replace(spread, recompute=name).setup, device))
        for name in RECOMPUTE
    ]
    matrix.append(("activations", "", "", *map(gib, activations)))
    for stage in STAGES:
        by_phase = phases(candidate.workload, replace(spread, zero_stage=stage).setup, device)
        row = [f"ZeRO {stage}", gib(max(phase.gradients for phase in by_phase)), gib(by_phase[0].optimizer)]
        for recompute in RECOMPUTE:
            setup = replace(spread, zero_stage=stage, recompute=recompute).setup
            variant = memory(candidate.workload, setup, device)
            is_planned = (stage, recompute) == (spread.zero_stage, spread.recompute)
            row.append(f"{'>' if is_planned else ''}{gib(variant.total)}{'' if variant.fits else ' !'}")
        matrix.append(row)
    return f"{aligned(rows)}\n\n{aligned(matrix)}\n(ZeRO: in all; > this plan, ! does not fit)"


def _flops(plan: TrainingPlan) -> str:
    flops = plan.flops
    useful = f"{count(flops.useful_per_token)} useful a target token, {count(flops.useful_per_step)} a step"
    return f"FLOPs  {useful}; executed {count(flops.executed_per_step)} a step"


def _collectives(plan: TrainingPlan) -> str:
    """Return a table of the collectives of one process in a step."""
    rows = [("collectives of a step", "kind", "over", "of", "times", "GiB", "inside node", "network", "takes")]
    for transfer in plan.collectives:
        collective = transfer.collective
        sizes = (gib(collective.bytes), gib(transfer.bytes_inside), gib(transfer.bytes_outside))
        kind, axes = words(collective.kind), " ".join(collective.axes)
        numbers = (str(transfer.processes), integer(collective.count), *sizes, time(transfer.seconds))
        rows.append((collective.part, kind, axes, *numbers))
    if traffic := plan.node_traffic:
        note = (
            f"{gib(traffic.sent)} GiB of dispatch go to other nodes, with the limit of nodes as without it: a row for "
            f"each choice or slot.\nIf each token went once to each of its nodes, which is not implemented, at most "
            f"{gib(traffic.once)} GiB would go, and {gib(traffic.once_without_limit)} GiB without the limit."
        )
        return f"{aligned(rows, left=(0, 1, 2))}\n{note}"
    return aligned(rows, left=(0, 1, 2)) if rows[1:] else "no collectives: one process"


def _step(plan: TrainingPlan) -> str:
    step = plan.step
    rows = [(f"step of {time(step.seconds)}", "", "")]
    rows += [(words(part), time(seconds), percent(seconds / step.seconds)) for part, seconds in step.parts.items()]
    return aligned(rows)


def _budget(plan: TrainingPlan) -> str:
    step, budget, device = plan.step, plan.budget, plan.device
    lines = [f"{integer(step.tokens_per_second)} target tokens/s, MFU {percent(step.mfu)}"]
    if budget.tokens:
        hours, seconds = budget.device_hours, budget.days * 86400
        duration_words = f"{days(budget.days)} days" if budget.days >= 2 else duration(seconds)
        cost = f"{dollars(budget.cost)} at ${device.price:.2f} each" if device.price else "no price is known"
        lines.append(f"{count(budget.tokens)} tokens: {duration_words}, {device_hours(hours)} device hours, {cost}")
    return "\n".join(lines)


def _compared(candidate: Candidate, *, in_years: bool) -> tuple[str, ...]:
    """Return the row of a plan, with device years or device hours."""
    spread, plan = candidate.spread, candidate.plan
    step, budget = plan.step, plan.budget
    years = budget.device_hours / YEAR
    return (
        candidate.workload.recipe,
        str(spread.devices),
        str(spread.ep),
        str(spread.mp),
        str(spread.zero_stage),
        spread.recompute,
        f"{gib(plan.memory.total)}{'' if plan.memory.fits else ' !'}",
        count(plan.parameters.total),
        f"{1 / step.seconds:.2f}",
        integer(step.tokens_per_second),
        percent(step.mfu),
        percent(step.parts.get("all_to_all", 0.0) / step.seconds),
        (f"{years:.2g}" if years < 0.95 else days(years)) if in_years else device_hours(budget.device_hours),
        days(budget.days),
        dollars(budget.cost),
    )


def _published(figures: Mapping[str, float]) -> tuple[str, ...]:
    """Return the row of published figures."""
    cells = {"recipe": "  published", **_published_cells(figures)}
    return tuple(cells.get(column, "") for column in _COMPARED)


def _published_cells(figures: Mapping[str, float]) -> dict[str, str]:
    """Return published figures as text, by the name of their column."""
    columns = {
        "devices": ("cores", "{:.0f}".format),
        "parameters": ("parameters", count),
        "steps/s": ("steps_per_second", "{:.2f}".format),
        "device years": ("core_years", days),
        "days": ("days", days),
    }
    return {column: form(figures[name]) for column, (name, form) in columns.items() if name in figures}


def published_text(figures: Mapping[str, float]) -> str:
    """Return published figures as a line."""
    return "published: " + ", ".join(f"{text} {column}" for column, text in _published_cells(figures).items())


def words(name: str) -> str:
    """Return the name of a part or collective as it is printed."""
    return name.replace("_to_", "-to-").replace("all_reduce", "all-reduce").replace("_", " ")
