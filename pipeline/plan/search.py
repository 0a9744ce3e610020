"""The spreads that fit a cluster, best first, and the spread that fits with the fewest changes to one that does not."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pipeline.plan.memory import Memory, memory
from pipeline.plan.plan import TrainingPlan, make_plan
from pipeline.plan.spread import CUT, PRESETS, RECOMPUTE, STAGES, Spread, Table, default_ep, divisors, is_legal
from pipeline.plan.workload import Device, Workload

SIZES = (1 / 4, 1 / 2, 2, 4)  # group sizes relative to the recipe's, at the same tokens a step
MOST_DEVICES, LEAST_LIMIT = 16, 4096  # a fit is looked for on so many times the devices, or on so many at least
# The parts of a device's memory, in the order in which a training takes them
MEMORY_PARTS = ("resident", "weights", "gradients", "optimizer", "buffers", "activations")


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A spread and its plan. own_groups: groups have the recipe's own size."""

    workload: Workload
    spread: Spread
    plan: TrainingPlan
    own_groups: bool

    @property
    def rank(self) -> tuple[float, ...]:
        """The key to sort by, best first. Of equally good spreads, the simpler one comes first."""
        spread, budget = self.spread, self.plan.budget
        complexity = (spread.mp, spread.zero_stage, RECOMPUTE.index(spread.recompute), -spread.ep)
        return (-self.plan.step.tokens_per_second, budget.days, budget.cost, *complexity)


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The result of a search.

    fitting: candidates that fit, best first.
    other_sizes: the same with groups of other sizes.
    num_legal: number of legal spreads with the recipe's own groups.
    """

    fitting: list[Candidate]
    other_sizes: list[Candidate]
    num_legal: int


def search(workload: Workload, devices: int, device: Device, named: Mapping[str, Table]) -> SearchResult:
    """Find all legal spreads over these devices that fit, each with its fastest recomputation.

    named: the layouts to try, by name.
    """
    fitting: list[Candidate] = []
    other_sizes: list[Candidate] = []
    num_legal = 0
    for spread in _legal(workload, devices, named):
        num_legal += 1
        fitting += _fastest(workload, spread, device, own_groups=True)
    for resized in _other_sizes(workload):
        for spread in _legal(resized, devices, named):
            other_sizes += _fastest(resized, spread, device, own_groups=False)
    return SearchResult(
        fitting=sorted(fitting, key=lambda candidate: candidate.rank),
        other_sizes=sorted(other_sizes, key=lambda candidate: candidate.rank),
        num_legal=num_legal,
    )


def nearest_fit(workload: Workload, spread: Spread, device: Device, *, more_devices: bool = True) -> Spread | None:
    """Return the spread that fits with the smallest changes, or None if none fits.

    The changes are tried in this order: recomputation and ZeRO stage, more parts of experts or of the model on the same
    devices, more devices, more devices with a model in more parts.
    """
    if fit := _fit_on(workload, spread, device, _more_parts(spread)):
        return fit
    limit = max(MOST_DEVICES * spread.devices, LEAST_LIMIT) if more_devices else 0
    heads, groups = divisors(workload.model.heads), divisors(workload.groups_per_step)
    numbers = sorted({mp * parts for mp in heads for parts in groups if spread.devices < mp * parts <= limit})
    larger = [replace(spread, devices=number) for number in numbers if number % spread.mp == 0]
    larger = [replace(s, ep=default_ep(workload, s.table, s.devices // s.mp)) for s in larger]
    for cut_more in (False, True):
        for candidate in larger:
            if fit := _fit_on(workload, candidate, device, _more_parts(candidate) if cut_more else []):
                return fit
    return None


def misfit(needed: Memory) -> str:
    """Return words on the first part of the memory that does not fit, or an empty string if everything fits."""
    left = needed.available
    before: list[str] = []
    for part in MEMORY_PARTS:
        size = getattr(needed, part)
        if size > left:
            after = f" after {', '.join(before)}" if before else ""
            return f"{part}: {gib(size)} GiB, but {gib(left)} of {gib(needed.available)} GiB are left{after}"
        left -= size
        if size:
            before.append(part)
    return ""


def _fit_on(workload: Workload, spread: Spread, device: Device, model_sizes: list[int]) -> Spread | None:
    """Return the first spread that fits on the same devices. model_sizes: sizes of the model axis to try."""
    best = default_ep(workload, spread.table, spread.devices // spread.mp)
    layouts = [spread, *([replace(spread, ep=best)] if best != spread.ep else [])]
    for mp in model_sizes:
        has_model_axis = "model" in {axis for axes in spread.table.values() for axis in axes}
        name, table = (spread.name, spread.table) if has_model_axis else (CUT, PRESETS[CUT])
        ep = default_ep(workload, table, spread.devices // mp)
        layouts.append(replace(spread, name=name, table=table, mp=mp, ep=ep))
    stages, recomputes = STAGES[STAGES.index(spread.zero_stage) :], RECOMPUTE[RECOMPUTE.index(spread.recompute) :]
    savings = [(stage, recompute) for stage in stages for recompute in recomputes]
    savings.sort(
        key=lambda pair: (pair[0] != spread.zero_stage) + (pair[1] != spread.recompute)
    )  # fewest changes first
    for layout in layouts:
        for zero_stage, recompute in savings if is_legal(workload, layout) else []:
            candidate = replace(layout, zero_stage=zero_stage, recompute=recompute)
            if memory(workload, candidate.setup, device).fits:
                return candidate
    return None


def _more_parts(spread: Spread) -> list[int]:
    return [mp for mp in divisors(spread.devices) if mp > spread.mp and mp % spread.mp == 0]


def _legal(workload: Workload, devices: int, named: Mapping[str, Table]) -> Iterator[Spread]:
    """Yield every legal spread over these devices, without recomputation."""
    for name, table in named.items():
        axes = {axis for letter in table.values() for axis in letter}
        for mp in divisors(devices) if "model" in axes else [1]:
            if mp == 1 and name == CUT:
                continue  # without a model axis this is the default layout
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


def _fastest(workload: Workload, spread: Spread, device: Device, *, own_groups: bool) -> list[Candidate]:
    """Return the spread with its fastest recomputation that fits, or nothing if none fits."""
    fitting: list[Candidate] = []
    for recompute in RECOMPUTE:
        variant = replace(spread, recompute=recompute)
        if memory(workload, variant.setup, device).fits:
            plan = make_plan(workload, variant.setup, device)
            fitting.append(Candidate(workload=workload, spread=variant, plan=plan, own_groups=own_groups))
            if recompute == "none":
                break  # recomputation only takes time
    return sorted(fitting, key=lambda candidate: candidate.plan.step.seconds)[:1]


def _other_sizes(workload: Workload) -> Iterator[Workload]:
    """Yield the workload with larger and smaller groups, at the same tokens a step."""
    for factor in SIZES:
        rows, groups = float(workload.shape.rows * factor), workload.groups_per_step / factor
        if rows.is_integer() and groups.is_integer():
            shape = replace(workload.shape, rows=int(rows))
            yield replace(workload, shape=shape, groups_per_step=int(groups))


def gib(size: float) -> str:
    """Format bytes as GiB."""
    return f"{size / 2**30:,.1f}" if size >= 0.05 * 2**30 or not size else f"{size / 2**30:.3f}"
