"""The table of a sweep, sweep.csv: size, cost and scores of every run (GShard, Tables 1 to 3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Literal

from eval.records.results import SEED, RunResults, System
from eval.records.routing import load_routing
from eval.records.run_record import Json, LossPoint
from eval.records.scores import BASELINE, SYSTEM, write_csv
from eval.report.plots.loss_levels import tokens_to
from eval.score.macro import ALL, THIRDS, complete_mean, macro_means

EQUAL_FLOPS = 1.1  # the largest ratio of FLOPs a token within a group; routers and vocabularies change them by less
WHOLE = ("parameters", "active_parameters", "flops_per_token", "tokens", "batch_tokens")
RESOURCES = (ALL, *THIRDS)
BALANCE = ("load_max", "load_cv", "importance_cv")  # of the development sets, means over MoE layers
Numbers = dict[str, float | None]


@dataclass(frozen=True, kw_only=True)
class CostRow:
    """One line of the table.

    kind: `run`; `mean` over a system's seeds; `bilingual` for the sum over the baselines of a run.
    num_models: models that the line summarises.
    numbers: values of the columns that `number_columns` names, None if not known. `flops_over_dense` is the ratio to
        the dense system of the same group.
    """

    id: str
    kind: Literal["run", "mean", "bilingual"]
    num_models: int
    model: Json  # settings of the model
    seed: int | None
    numbers: Numbers

    @property
    def experts(self) -> int | None:
        """Experts of an MoE layer; None for a dense model, and for the baselines."""
        return self.model.get("moe", {}).get("num_experts") or None

    @property
    def gate(self) -> str:
        """The kind of the gate, empty for a model without experts."""
        return str(self.model["moe"].get("gate", {}).get("kind", "")) if self.experts else ""

    @property
    def layers(self) -> tuple[int, int] | None:
        """Layers of the encoder and of the decoder; None if not recorded."""
        counts = (self.model.get("encoder_layers"), self.model.get("decoder_layers"))
        return None if None in counts else counts  # type: ignore[return-value]


@dataclass(frozen=True, kw_only=True)
class FlopsGroup:
    """Systems whose FLOPs a token are equal within EQUAL_FLOPS.

    systems: the rows of each system: its run, or the mean of several seeds and then their runs.
    dense: the row of the first dense system, with which the others are compared.
    """

    systems: tuple[tuple[CostRow, ...], ...]
    dense: CostRow | None

    @property
    def flops_per_token(self) -> float | None:
        """FLOPs a token of the cheapest system; None if not recorded."""
        return self.systems[0][0].numbers["flops_per_token"]


def cost_groups(
    systems: Sequence[System],
    losses: Mapping[str, Sequence[LossPoint]],
    validation: Mapping[str, Sequence[LossPoint]],
    levels: Sequence[float],
) -> list[FlopsGroup]:
    """Return groups of systems with equal FLOPs, the cheapest first.

    In a group, dense systems come first; otherwise the order is the one given.

    losses, validation: records of training and of validation by the label of the run.
    levels: losses to which tokens are counted.
    """
    groups: list[list[tuple[CostRow, ...]]] = []
    for rows in sorted(
        (_system_rows(system, losses, validation, levels) for system in systems),
        key=lambda rows: rows[0].numbers["flops_per_token"] or float("inf"),
    ):
        flops = rows[0].numbers["flops_per_token"]
        first = groups[-1][0][0].numbers["flops_per_token"] if groups else None
        if groups and (first == flops or (first and flops and flops <= EQUAL_FLOPS * first)):
            groups[-1].append(rows)
        else:
            groups.append([rows])
    order = [system.label for system in systems]
    return [_group(rows, order) for rows in groups]


def bilingual_rows(runs: Sequence[RunResults]) -> list[CostRow]:
    """Return a row for each different set of baselines, so one row if all runs share them."""
    sets: dict[str, list[RunResults]] = {}
    for run in runs:
        if run.record.systems.get(BASELINE):
            sets.setdefault(repr([_identity(ledger) for ledger in run.record.systems[BASELINE]]), []).append(run)
    return [
        CostRow(
            id=BASELINE if len(sets) == 1 else f"{BASELINE} of {', '.join(run.label for run in sharing)}",
            kind="bilingual",
            num_models=len(sharing[0].record.systems[BASELINE]),
            model={},
            seed=None,
            numbers=_bilingual_numbers(sharing[0]),
        )
        for sharing in sets.values()
    ]


def save_sweep(path: Path, groups: Sequence[FlopsGroup], bilingual: Sequence[CostRow], levels: Sequence[float]) -> None:
    """Write sweep.csv in the order of the rows. Unknown values are empty."""
    rows = [row for group in groups for rows in group.systems for row in rows] + list(bilingual)
    numbers = number_columns(levels)
    write_csv(
        path,
        ("id", "kind", "models", "experts", "layers", "gate", "seed", *numbers),
        [
            [
                row.id,
                row.kind,
                str(row.num_models),
                str(row.experts or ""),
                str(sum(row.layers) if row.layers else ""),
                row.gate,
                "" if row.seed is None else str(row.seed),
                *(_cell(name, row.numbers.get(name)) for name in numbers),
            ]
            for row in rows
        ],
    )


def number_columns(levels: Sequence[float]) -> list[str]:
    """Return the names of the columns of numbers."""
    costs = [*WHOLE[:3], "flops_over_dense", "tokens", "steps_per_second", "batch_tokens", "device_hours"]
    scores = [score_column(kind, resource) for resource in RESOURCES for kind in ("bleu", "delta_bleu")]
    return [*costs, "validation", *BALANCE, *map(level_column, levels), *scores]


def level_column(level: float) -> str:
    """Return the column of the tokens to a loss: tokens_to_2.5."""
    return f"tokens_to_{level_name(level)}"


def level_name(level: float) -> str:
    """Return a loss with as many decimals as it needs, one at least: 3.0, 2.25."""
    return f"{level:.1f}" if level == round(level, 1) else f"{level:g}"


def score_column(kind: str, resource: str) -> str:
    """Return the column of a resource class: bleu for all pairs, bleu_low for those of low resource."""
    return kind if resource == ALL else f"{kind}_{resource}"


def _cell(name: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if name in WHOLE or name.startswith("tokens_to_") else f"{value:.4f}"


def _group(systems: Sequence[tuple[CostRow, ...]], order: Sequence[str]) -> FlopsGroup:
    ordered = sorted(systems, key=lambda rows: (rows[0].experts is not None, order.index(rows[0].id)))
    dense = ordered[0][0] if ordered[0][0].experts is None else None
    base = dense.numbers["flops_per_token"] if dense else None
    return FlopsGroup(
        systems=tuple(tuple(_over_dense(row, base) for row in rows) for rows in ordered),
        dense=dense,
    )


def _over_dense(row: CostRow, base: float | None) -> CostRow:
    flops = row.numbers["flops_per_token"]
    return replace(row, numbers=row.numbers | {"flops_over_dense": flops / base if flops and base else None})


def _system_rows(
    system: System,
    losses: Mapping[str, Sequence[LossPoint]],
    validation: Mapping[str, Sequence[LossPoint]],
    levels: Sequence[float],
) -> tuple[CostRow, ...]:
    rows = [_run_row(run, losses[run.label], validation[run.label], levels) for run in system.runs]
    if len(rows) == 1:
        return tuple(rows)
    numbers = {name: complete_mean([row.numbers[name] for row in rows]) for name in rows[0].numbers}
    mean = replace(rows[0], id=system.label, kind="mean", num_models=len(rows), seed=None, numbers=numbers)
    return (mean, *rows)


def _run_row(
    run: RunResults, train: Sequence[LossPoint], validation: Sequence[LossPoint], levels: Sequence[float]
) -> CostRow:
    config = run.record.config
    ledgers = run.record.systems.get(SYSTEM) or [{}]
    numbers = _cost(ledgers[0])
    numbers |= {level_column(level): tokens_to(train, level) for level in levels}
    numbers["validation"] = min((point.cross_entropy for point in validation), default=None)
    numbers |= _balance(run)
    return CostRow(
        id=run.label,
        kind="run",
        num_models=1,
        model=config.get("model", {}),
        seed=config.get("train", {}).get(SEED),
        numbers=numbers | _scores(run, SYSTEM),
    )


def _cost(ledger: Json) -> Numbers:
    names = ("parameters", "active_parameters", "flops_per_token", "tokens", "device_hours")
    numbers: Numbers = {name: ledger.get(name) for name in names}
    steps, seconds, tokens = (ledger.get(name) for name in ("steps", "train_seconds", "tokens"))
    numbers["steps_per_second"] = steps / seconds if steps and seconds else None
    numbers["batch_tokens"] = tokens / steps if steps and tokens else None
    return numbers


def _balance(run: RunResults) -> Numbers:
    """Return how evenly the experts are used, None without experts."""
    layers = load_routing(run.directory, run.record.pairs)
    if not layers:
        return dict.fromkeys(BALANCE)
    columns = ([float(x.load_E.max()) for x in layers], [x.load_cv for x in layers], [x.importance_cv for x in layers])
    return dict(zip(BALANCE, map(fmean, columns), strict=True))


def _scores(run: RunResults, system: str) -> Numbers:
    """Return the mean BLEU of every resource class, and for the multilingual model its gain over the baselines."""
    means = {(row.resource, row.system): row.score for row in macro_means(run.scores) if row.metric == "bleu"}
    numbers: Numbers = {}
    for resource in RESOURCES:
        score, base = means.get((resource, system)), means.get((resource, BASELINE))
        gain = score - base if score is not None and base is not None and system != BASELINE else None
        numbers |= {score_column("bleu", resource): score, score_column("delta_bleu", resource): gain}
    return numbers


def _bilingual_numbers(run: RunResults) -> Numbers:
    costs = [_cost(ledger) for ledger in run.record.systems[BASELINE]]
    summed = ("parameters", "tokens", "device_hours")
    numbers = {name: _total([cost[name] for cost in costs]) if name in summed else None for name in costs[0]}
    return numbers | _scores(run, BASELINE)


def _identity(ledger: Json) -> object:
    artifacts = ledger.get("artifacts") or {}
    return artifacts.get("model") or ledger


def _total(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return sum(present) if len(present) == len(values) else None
