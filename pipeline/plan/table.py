"""Plans as text: one in full, several side by side with what their papers say, and what a search found."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from eval.number_format import MISSING, duration, integer, quantity
from pipeline.plan.config import published
from pipeline.plan.memory import memory, phases
from pipeline.plan.plan import Plan
from pipeline.plan.search import HELD, Found, gib
from pipeline.plan.spread import PRESETS, RECOMPUTE, STAGES, Spread

YEAR = 24 * 365.25  # hours
_COMPARED = (
    *("recipe", "devices", "ep", "mp", "ZeRO", "recompute", "GiB", "parameters", "steps/s", "tokens/s", "MFU"),
    *("all-to-all", "device years", "days", "cost"),
)
_SEARCHED = (
    *("", "layout", "data", "ep", "mp", "ZeRO", "recompute", "rows", "GiB", "step", "tokens/s", "MFU", "days"),
    "cost",
)


def plan_text(found: Found) -> str:
    """Everything that is known of one plan."""
    plan = found.plan
    parts = [_heading(found), _parameters(plan), _memory(found), _flops(plan), _collectives(plan), _step(plan)]
    parts.append(_budget(plan))
    return "\n\n".join(part for part in parts if part)


def spread_words(spread: Spread) -> str:
    sizes = spread.layout.sizes
    axes = " x ".join(f"{axis} {size}" for axis, size in sizes.items())
    changed = "" if spread.table == PRESETS.get(spread.name) else ", changed"
    return f"layout {spread.name}{changed} ({axes}), ZeRO {spread.zero_stage}, recompute {spread.recompute}"


def short(spread: Spread) -> str:
    mp = f" mp {spread.mp}" if spread.mp > 1 else ""
    return f"{spread.name} ep {spread.ep}{mp} ZeRO {spread.zero_stage}, {spread.recompute}"


def comparison_text(plans: Sequence[Found]) -> str:
    """A row a recipe; under what ours says stands what was published, where something was."""
    rows: list[Sequence[str]] = [_COMPARED]
    for found in plans:
        said = published(found.workload.recipe)
        rows += [_compared(found), *([_published(said)] if said else [])]
    return aligned(rows, left=(0, 5))


def search_text(found: Sequence[Found]) -> str:
    """Best first; rows of groups of another size than the recipe's have a star."""
    rows: list[Sequence[str]] = [_SEARCHED]
    for number, each in enumerate(found, 1):
        spread, plan = each.spread, each.plan
        rows.append(
            (
                str(number),
                spread.name,
                str(spread.layout.sizes["data"]),
                str(spread.ep),
                str(spread.mp),
                str(spread.zero_stage),
                spread.recompute,
                f"{each.workload.shape.rows}{'' if each.own else '*'}",
                gib(plan.memory.total),
                time(plan.step.seconds),
                integer(plan.step.tokens_per_second),
                percent(plan.step.mfu),
                days(plan.budget.days),
                dollars(plan.budget.cost),
            )
        )
    return aligned(rows, left=(1, 6))


def aligned(rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    """Columns under each other; those not in `left` end at the same place."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def time(seconds: float) -> str:
    """Three digits, in seconds or milliseconds."""
    return f"{seconds:.2f} s" if seconds >= 0.9995 else f"{1000 * seconds:.3g} ms"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def days(number: float) -> str:
    """Tenths of days; less than one as hours, minutes or seconds."""
    return f"{number:,.1f}" if number >= 0.095 or not number else duration(86400 * number)


def dollars(cost: float) -> str:
    return f"${integer(cost)}" if cost >= 100 else f"${cost:.2f}" if cost else MISSING


def count(number: float) -> str:
    return quantity(number).replace(" ", "")


def _heading(found: Found) -> str:
    workload, layout = found.workload, found.spread.layout
    shape, groups = workload.shape, workload.groups_per_step
    parts = layout.parts(layout.batch_axes)
    return (
        f"{workload.recipe} on {found.spread.devices} x {found.plan.device.name}, {workload.precision}\n"
        f"{spread_words(found.spread)}\n"
        f"a step of {integer(groups * shape.rows * shape.target)} target tokens: {groups} groups of {shape.rows} rows "
        f"of {shape.source} + {shape.target}, {groups // parts} for each of {parts} process{'es' if parts > 1 else ''}"
    )


def _parameters(plan: Plan) -> str:
    found = plan.parameters
    return aligned(
        [
            ("parameters", "total", "active", "replicated", "experts", "per device"),
            ("", *map(count, (found.total, found.active, found.replicated, found.experts, found.per_device))),
        ]
    )


def _memory(found: Found) -> str:
    """By part at the peak, and by ZeRO's stage and recomputation."""
    held, spread, device = found.plan.memory, found.spread, found.plan.device
    parts = [(part, getattr(held, part)) for part in HELD if getattr(held, part)]
    rows = [(f"GiB at the peak, in {held.phase}", *(part for part, _ in parts), "in all", "of")]
    rows.append(("", *(gib(size) for _, size in parts), gib(held.total), gib(held.available)))
    matrix: list[Sequence[str]] = [("recompute", "gradients", "optimizer", *RECOMPUTE)]
    computed = [phases(found.workload, replace(spread, recompute=each).setup, device) for each in RECOMPUTE]
    matrix.append(("activations", "", "", *(gib(max(phase.activations for phase in each)) for each in computed)))
    for stage in STAGES:
        held_then = phases(found.workload, replace(spread, zero_stage=stage).setup, device)
        row = [f"ZeRO {stage}", gib(max(each.gradients for each in held_then)), gib(held_then[0].optimizer)]
        for recompute in RECOMPUTE:
            setup = replace(spread, zero_stage=stage, recompute=recompute).setup
            other = memory(found.workload, setup, device)
            chosen = (stage, recompute) == (spread.zero_stage, spread.recompute)
            row.append(f"{'>' if chosen else ''}{gib(other.total)}{'' if other.fits else ' !'}")
        matrix.append(row)
    return f"{aligned(rows)}\n\n{aligned(matrix)}\n(ZeRO: in all; > this plan, ! does not fit)"


def _flops(plan: Plan) -> str:
    found = plan.flops
    useful = f"{count(found.useful_per_token)} useful a target token, {count(found.useful_per_step)} a step"
    return f"FLOPs  {useful}; executed {count(found.executed_per_step)} a step"


def _collectives(plan: Plan) -> str:
    """What one process sends in a step."""
    rows = [("collectives of a step", "kind", "over", "of", "times", "GiB", "inside node", "network", "takes")]
    for transfer in plan.collectives:
        each = transfer.collective
        sent = (gib(each.bytes), gib(transfer.bytes_inside), gib(transfer.bytes_outside), time(transfer.seconds))
        rows.append(
            (each.part, words(each.kind), " ".join(each.axes), str(transfer.processes), integer(each.count), *sent)
        )
    return aligned(rows, left=(0, 1, 2)) if rows[1:] else "no collectives: one process"


def _step(plan: Plan) -> str:
    step = plan.step
    rows = [(f"step of {time(step.seconds)}", "", "")]
    rows += [(words(part), time(taken), percent(taken / step.seconds)) for part, taken in step.parts.items()]
    return aligned(rows)


def _budget(plan: Plan) -> str:
    step, budget, device = plan.step, plan.budget, plan.device
    lines = [f"{integer(step.tokens_per_second)} target tokens/s, MFU {percent(step.mfu)}"]
    if budget.tokens:
        hours, seconds = budget.device_hours, budget.days * 86400
        taken = f"{days(budget.days)} days" if budget.days >= 2 else duration(seconds)
        cost = f"{dollars(budget.cost)} at ${device.price:.2f} each" if device.price else "no price is known"
        shown = integer(hours) if hours >= 10 else f"{hours:.2g}"
        lines.append(f"{count(budget.tokens)} tokens: {taken}, {shown} device hours, {cost}")
    return "\n".join(lines)


def _compared(found: Found) -> tuple[str, ...]:
    spread, plan = found.spread, found.plan
    step, budget = plan.step, plan.budget
    return (
        found.workload.recipe,
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
        f"{budget.device_hours / YEAR:.2g}" if budget.device_hours < 0.95 * YEAR else days(budget.device_hours / YEAR),
        days(budget.days),
        dollars(budget.cost),
    )


def _published(said: Mapping[str, float]) -> tuple[str, ...]:
    """Under the row of ours."""
    shown = {"recipe": "  published", **_shown(said)}
    return tuple(shown.get(column, "") for column in _COMPARED)


def _shown(said: Mapping[str, float]) -> dict[str, str]:
    """By the names of columns, in their order."""
    columns = {
        "devices": ("cores", "{:.0f}".format),
        "parameters": ("parameters", count),
        "steps/s": ("steps_per_second", "{:.2f}".format),
        "device years": ("core_years", days),
        "days": ("days", days),
    }
    return {column: show(said[name]) for column, (name, show) in columns.items() if name in said}


def published_text(said: Mapping[str, float]) -> str:
    return "published: " + ", ".join(f"{text} {column}" for column, text in _shown(said).items())


def words(name: str) -> str:
    return name.replace("_to_", "-to-").replace("all_reduce", "all-reduce").replace("_", " ")
