"""Which spreads fit a cluster: all of them, best first, and the one that is nearest to one that does not."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pipeline.plan.memory import Memory, memory
from pipeline.plan.plan import Plan, make_plan
from pipeline.plan.spread import CUT, PRESETS, RECOMPUTE, STAGES, Spread, Table, default_ep, divisors, is_legal
from pipeline.plan.workload import Device, Workload

SIZES = (1 / 4, 1 / 2, 2, 4)  # of a group, in units of the recipe's, at the same tokens a step
MOST_DEVICES, LEAST_LIMIT = 16, 4096  # up to so many times as many are looked at for something that fits, or so many
# What a device holds, in the order in which a training has it
HELD = ("resident", "weights", "gradients", "optimizer", "buffers", "activations")


@dataclass(frozen=True, kw_only=True)
class Found:
    """A spread and what comes of it. own: groups of the recipe's own size."""

    workload: Workload
    spread: Spread
    plan: Plan
    own: bool

    @property
    def rank(self) -> tuple[float, ...]:
        """Smaller is better; of equals, what asks for less comes first."""
        spread, budget = self.spread, self.plan.budget
        plain = (spread.mp, spread.zero_stage, RECOMPUTE.index(spread.recompute), -spread.ep)
        return (-self.plan.step.tokens_per_second, budget.days, budget.cost, *plain)


@dataclass(frozen=True, kw_only=True)
class Search:
    """found: what fits, best first. other: the same with groups of other sizes. legal: how many of the recipe's own
    there are."""

    found: list[Found]
    other: list[Found]
    legal: int


def search(workload: Workload, devices: int, device: Device, named: Mapping[str, Table]) -> Search:
    """All layouts of these devices that are legal and fit; of each only with the fastest recomputation of those
    with which it does. named: layouts to look at."""
    found: list[Found] = []
    legal = 0
    for size, own in ((workload, True), *((other, False) for other in _other_sizes(workload))):
        for spread in _legal(size, devices, named):
            legal += own
            if fitting := _fastest(size, spread, device):
                found.append(Found(workload=size, spread=fitting[0], plan=fitting[1], own=own))
    found.sort(key=lambda each: each.rank)
    return Search(
        found=[each for each in found if each.own], other=[each for each in found if not each.own], legal=legal
    )


def nearest_fit(workload: Workload, spread: Spread, device: Device, *, more_devices: bool = True) -> Spread | None:
    """What fits with the smallest changes: recomputation, ZeRO's stage, more parts of experts or of the model on the
    same devices, and only then more devices, without and with a model in more parts. None where nothing does."""
    if found := _fit_on(workload, spread, device, _more_parts(spread)):
        return found
    limit = max(MOST_DEVICES * spread.devices, LEAST_LIMIT) if more_devices else 0
    heads, groups = divisors(workload.model.heads), divisors(workload.groups_per_step)
    numbers = sorted({mp * each for mp in heads for each in groups if spread.devices < mp * each <= limit})
    larger = [replace(spread, devices=each) for each in numbers if each % spread.mp == 0]
    larger = [replace(each, ep=default_ep(workload, each.table, each.devices // each.mp)) for each in larger]
    for parts in (False, True):
        for other in larger:
            if found := _fit_on(workload, other, device, _more_parts(other) if parts else []):
                return found
    return None


def misfit(found: Memory) -> str:
    """The first thing that does not fit, and what is left for it; empty where all fits."""
    left = found.available
    before: list[str] = []
    for part in HELD:
        size = getattr(found, part)
        if size > left:
            after = f" after {', '.join(before)}" if before else ""
            return f"{part}: {gib(size)} GiB, but {gib(left)} of {gib(found.available)} GiB are left{after}"
        left -= size
        if size:
            before.append(part)
    return ""


def _fit_on(workload: Workload, spread: Spread, device: Device, more: list[int]) -> Spread | None:
    """The first that fits on the same devices. more: sizes of the model axis to try."""
    best = default_ep(workload, spread.table, spread.devices // spread.mp)
    named = [spread, *([replace(spread, ep=best)] if best != spread.ep else [])]
    for mp in more:
        uses = "model" in {axis for axes in spread.table.values() for axis in axes}
        name, cuts = (spread.name, spread.table) if uses else (CUT, PRESETS[CUT])
        ep = default_ep(workload, cuts, spread.devices // mp)
        named.append(replace(spread, name=name, table=cuts, mp=mp, ep=ep))
    stages, again = STAGES[STAGES.index(spread.zero_stage) :], RECOMPUTE[RECOMPUTE.index(spread.recompute) :]
    both = [(stage, each) for stage in stages for each in again]
    both.sort(key=lambda pair: (pair[0] != spread.zero_stage) + (pair[1] != spread.recompute))  # fewest changes first
    for layout in named:
        for zero_stage, recompute in both if is_legal(workload, layout) else []:
            other = replace(layout, zero_stage=zero_stage, recompute=recompute)
            if memory(workload, other.setup, device).fits:
                return other
    return None


def _more_parts(spread: Spread) -> list[int]:
    return [mp for mp in divisors(spread.devices) if mp > spread.mp and mp % spread.mp == 0]


def _legal(workload: Workload, devices: int, named: Mapping[str, Table]) -> Iterator[Spread]:
    for name, table in named.items():
        axes = {axis for letter in table.values() for axis in letter}
        for mp in divisors(devices) if "model" in axes else [1]:
            if mp == 1 and name == CUT:
                continue  # then it is the default
            for ep in divisors(devices // mp) if "expert" in table.get("E", ()) else [1]:
                if ep > 1 and not workload.model.moe.num_experts:
                    continue
                for zero_stage in STAGES:
                    spread = Spread(
                        name=name,
                        table=table,
                        devices=devices,
                        ep=ep,
                        mp=mp,
                        zero_stage=zero_stage,
                        recompute="none",
                    )
                    if is_legal(workload, spread):
                        yield spread


def _fastest(workload: Workload, spread: Spread, device: Device) -> tuple[Spread, Plan] | None:
    """With the recomputation that takes the least time of those with which it fits: none, where that does."""
    fitting: list[tuple[Spread, Plan]] = []
    for recompute in RECOMPUTE:
        other = replace(spread, recompute=recompute)
        if memory(workload, other.setup, device).fits:
            fitting.append((other, make_plan(workload, other.setup, device)))
            if recompute == "none":
                break
    return min(fitting, key=lambda each: each[1].step.seconds, default=None)


def _other_sizes(workload: Workload) -> Iterator[Workload]:
    for factor in SIZES:
        rows, groups = float(workload.shape.rows * factor), workload.groups_per_step / factor
        if rows.is_integer() and groups.is_integer():
            shape = replace(workload.shape, rows=int(rows))
            yield replace(workload, shape=shape, groups_per_step=int(groups))


def gib(size: float) -> str:
    return f"{size / 2**30:,.1f}" if size >= 0.05 * 2**30 or not size else f"{size / 2**30:.3f}"
