"""Compare outcomes with their references, in numbers that have bounds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

from pipeline.verify.config import NUM_EXPERTS, Case, Target

Array = npt.NDArray[Any]

# Prefixes of tensors' names in an outcome's file, and suffixes of tensors that differ between processes
GRADIENT, WEIGHT = "gradient of ", "weight "
LATER, EARLY = "later ", "early "  # a reference's gradients in the step after a checkpoint, and weights of a short run
LARGEST, SMALLEST = " (largest of all processes)", " (smallest of all processes)"


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """A column of the table. key: in `BOUNDS`. head: its heading."""

    key: str
    head: str


QUANTITIES = (
    Quantity(key="first_loss", head="loss"),
    Quantity(key="first_gradient", head="gradient"),
    Quantity(key="first_norm", head="norm"),
    Quantity(key="loss", head="loss"),
    Quantity(key="norm", head="norm"),
    Quantity(key="weight", head="weights"),
)

# Relative bounds. Quantities without a bound are shown only. docs/verify.md has the reasons.
BOUNDS: dict[str, dict[str, float]] = {
    "float64": {
        "first_loss": 1e-12,
        "first_gradient": 1e-12,
        "first_norm": 1e-6,
        "loss": 1e-8,
        "norm": 1e-6,
        "weight": 1e-6,
    },
    "fp32": {"first_loss": 1e-6, "first_gradient": 1e-5, "first_norm": 1e-6},
    "fp32 replayed": {
        "first_loss": 1e-6,
        "first_gradient": 1e-5,
        "first_norm": 1e-6,
        "loss": 1e-5,
        "norm": 1e-3,
        "weight": 3e-2,
    },
    "bf16": {"first_loss": 5e-3, "first_gradient": 2e-2, "first_norm": 5e-3, "loss": 5e-3},
    "bf16 cut": {"first_loss": 5e-3, "first_norm": 5e-3, "loss": 5e-3},  # cut over a model axis
    "bf16 to fp32": {"first_loss": 5e-3, "loss": 5e-3},
    "float64 resumed": {
        "first_loss": 1e-8,
        "first_gradient": 1e-6,
        "first_norm": 1e-6,
        "loss": 1e-8,
        "norm": 1e-6,
        "weight": 1e-6,
    },
}


@dataclass(frozen=True, kw_only=True)
class Deviation:
    """The largest deviation of one quantity, in units of the reference's largest entry. where: tensor or step."""

    value: float
    where: str
    bound: float | None

    @property
    def failed(self) -> bool:
        return self.bound is not None and not self.value <= self.bound


@dataclass(frozen=True, kw_only=True)
class Row:
    """One comparison.

    title: names it in a failure.
    cells: what the table says about the case.
    deviations: by key of `Quantity`.
    moved: how many of the `tokens` other experts served than in the reference.
    replayed: the run used the reference's routing, so no token may have moved.
    """

    title: str
    cells: list[str]
    deviations: dict[str, Deviation]
    moved: int
    tokens: int
    replayed: bool = False

    @property
    def failed(self) -> bool:
        return next(self.failures(), None) is not None

    def failures(self) -> Iterator[str]:
        """Yield a line for each quantity beyond its bound."""
        for deviation in self.deviations.values():
            if deviation.failed:
                yield f"{self.title}: {deviation.where} differs by {deviation.value:.1e} (bound {deviation.bound:.0e})"
        if self.replayed and self.moved:
            yield f"{self.title}: replayed routing is not the reference's for {self.moved} of {self.tokens} tokens"


def compare_case(case: Case, directory: Path) -> Row:
    """Compare a run of the engine with plain torch in the same precision."""
    precision, outcome = case.precision + " replayed" * case.replayed, _load(directory, case.name)
    return _compare(
        outcome,
        _part(_load(directory, case.reference), 1, len(outcome["loss"])),
        title=f"{_title(case)} {precision} {case.gate}",
        cells=[*_place(case), precision, case.gate],
        bounds=BOUNDS["bf16 cut" if case.precision == "bf16" and case.mp > 1 else precision],
        replayed=case.replayed,
    )


def compare_resumption(target: Target, source: Case, first: int, directory: Path) -> Row:
    """Compare a run that continued at step `first` from another topology with plain torch, which never stopped."""
    case, outcome = target.case, _load(directory, target.name(source))
    return _compare(
        outcome,
        _part(_load(directory, case.reference), first, len(outcome["loss"])),
        title=f"{_title(case)} {case.precision} {case.gate} from a checkpoint of {_title(source)}",
        cells=[],
        bounds=BOUNDS[f"{case.precision} resumed"],
        first=first,
    )


def _part(reference: dict[str, Array], first: int, number: int) -> dict[str, Array]:
    """Return what a reference has of `number` steps, with the names of an outcome. first: number of the first step."""
    last = first - 1 + number
    gradient = GRADIENT if first == 1 else LATER + GRADIENT
    weight = WEIGHT if last == len(reference["loss"]) else EARLY + WEIGHT
    part = {name: reference[name][first - 1 : last] for name in ("loss", "norm", "served")}
    for begins, prefix in ((gradient, GRADIENT), (weight, WEIGHT)):
        part |= {name.replace(begins, prefix, 1): value for name, value in reference.items() if name.startswith(begins)}
    return part


def worst(target: Case, rows: Sequence[Row]) -> Row:
    """Return the worst of the rows of a topology that continued from the checkpoints of several others."""
    deviations = {
        key: max((row.deviations[key] for row in rows), key=lambda deviation: deviation.value)
        for key in rows[0].deviations
    }
    return Row(
        title=_title(target),
        cells=[*_place(target), target.precision, f"from {len(rows)} others"],
        deviations=deviations,
        moved=max(row.moved for row in rows),
        tokens=rows[0].tokens,
    )


def _place(case: Case) -> list[str]:
    return [str(case.world), case.mesh, case.layout, str(case.zero_stage), str(case.accumulation)]


def _title(case: Case) -> str:
    return "world={} mesh={} layout={} ZeRO={} accumulation={}".format(*_place(case))


def compare_bf16(reference: Case, fp32: Case, directory: Path) -> Row:
    """Compare plain torch in bf16 with plain torch in fp32."""
    return _compare(
        _load(directory, reference.reference),
        _load(directory, fp32.reference),
        title=f"plain torch bf16 to fp32 {reference.gate}",
        cells=["torch", "", "", "", str(reference.groups), "bf16 to fp32", reference.gate],
        bounds=BOUNDS["bf16 to fp32"],
    )


def _load(directory: Path, name: str) -> dict[str, Array]:
    loaded: dict[str, Array] = load_file(directory / f"{name}.safetensors")
    return loaded


def _compare(
    outcome: dict[str, Array],
    reference: dict[str, Array],
    *,
    title: str,
    cells: list[str],
    bounds: dict[str, float],
    replayed: bool = False,
    first: int = 1,
) -> Row:
    """Return the row of one comparison. first: number of the first step."""
    views = [_distances(view, reference, first) for view in _views(outcome)]
    served, expected = (tensors["served"].reshape(-1, NUM_EXPERTS) for tensors in (outcome, reference))
    return Row(
        title=title,
        cells=cells,
        deviations={
            key: Deviation(value=value, where=where, bound=bounds.get(key))
            for key in views[0]
            for value, where in [max(distances[key] for distances in views)]
        },
        moved=int((served != expected).any(axis=1).sum()),
        tokens=int(expected.any(axis=1).sum()),
        replayed=replayed,
    )


def _views(outcome: dict[str, Array]) -> Iterator[dict[str, Array]]:
    """Yield the first process's tensors, and if other processes differ, the largest and the smallest entries."""
    first = {name: value for name, value in outcome.items() if not name.endswith((LARGEST, SMALLEST))}
    yield first
    for suffix in (LARGEST, SMALLEST):
        if extremes := {name.removesuffix(suffix): value for name, value in outcome.items() if name.endswith(suffix)}:
            yield {**first, **extremes}


def _distances(outcome: dict[str, Array], reference: dict[str, Array], first: int) -> dict[str, tuple[float, str]]:
    """Return the largest distance of each `Quantity`, with the name of the tensor or step."""
    return {
        "first_loss": (_distance(outcome["loss"][:1], reference["loss"][:1]), f"loss of step {first}"),
        "first_gradient": _worst(outcome, reference, GRADIENT),
        "first_norm": (_distance(outcome["norm"][:1], reference["norm"][:1]), f"clip norm of step {first}"),
        "loss": _worst_step(outcome, reference, "loss", first),
        "norm": _worst_step(outcome, reference, "norm", first),
        "weight": _worst(outcome, reference, WEIGHT),
    }


def _distance(values: Array, expected: Array) -> float:
    """Return the largest difference in units of the largest expected entry; infinite for other shapes and for NaN."""
    if values.shape != expected.shape or not (np.isfinite(values).all() and np.isfinite(expected).all()):
        return float("inf")
    difference = float(np.abs(values.astype(np.float64) - expected).max(initial=0.0))
    size = float(np.abs(expected).max(initial=0.0))
    if not difference:
        return 0.0
    return difference / size if size else float("inf")


def _worst(outcome: dict[str, Array], reference: dict[str, Array], prefix: str) -> tuple[float, str]:
    """Return the largest distance of the tensors with a prefix, and the tensor's name."""
    names = {name for name in (*outcome, *reference) if name.startswith(prefix)}
    nothing = np.zeros(0)
    return max((_distance(outcome.get(name, nothing), reference.get(name, nothing)), name) for name in sorted(names))


def _worst_step(outcome: dict[str, Array], reference: dict[str, Array], key: str, first: int) -> tuple[float, str]:
    """Return the largest distance of the steps, and the step's name."""
    steps = enumerate(zip(outcome[key], reference[key], strict=True), first)
    distance, step = max((_distance(value, expected), step) for step, (value, expected) in steps)
    return distance, f"{'clip norm' if key == 'norm' else key} of step {step}"
