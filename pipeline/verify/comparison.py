"""Outcomes against their references, in numbers that have bounds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

from pipeline.verify.config import NUM_EXPERTS, Case, Target

Array = npt.NDArray[Any]

# Beginnings of tensors' names in an outcome's file; endings of those that are not the same on all processes
GRADIENT, WEIGHT = "gradient of ", "weight "
LATER, EARLY = "later ", "early "  # a reference's gradient of the step after a checkpoint, and its weights halfway
LARGEST, SMALLEST = " (largest of all processes)", " (smallest of all processes)"


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """What a column of the table shows. key: of `BOUNDS`."""

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

# Relative. What is missing is shown and not judged. docs/verify.md gives the reasons.
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
    "bf16 cut": {"first_loss": 5e-3, "first_norm": 5e-3, "loss": 5e-3},  # over a model axis
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
    """The largest of one quantity, in units of the reference's largest entry. where: tensor or step."""

    value: float
    where: str
    bound: float | None

    @property
    def failed(self) -> bool:
        return self.bound is not None and not self.value <= self.bound


@dataclass(frozen=True, kw_only=True)
class Row:
    """One comparison. title: for a failure. moved: of `tokens`, those served by other experts than in the reference;
    none may be where routing was replayed."""

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
        """One line for each quantity beyond its bound."""
        for deviation in self.deviations.values():
            if deviation.failed:
                yield f"{self.title}: {deviation.where} differs by {deviation.value:.1e} (bound {deviation.bound:.0e})"
        if self.replayed and self.moved:
            yield f"{self.title}: replayed routing is not the reference's for {self.moved} of {self.tokens} tokens"


def compare_case(case: Case, directory: Path) -> Row:
    """A run of the engine with plain torch in the same precision."""
    precision, mine = case.precision + " replayed" * case.replayed, _load(directory, case.name)
    return _compare(
        mine,
        _part(_load(directory, case.reference), 1, len(mine["loss"])),
        title=f"{_title(case)} {precision} {case.gate}",
        cells=[*_place(case), precision, case.gate],
        bounds=BOUNDS["bf16 cut" if case.precision == "bf16" and case.mp > 1 else precision],
        replayed=case.replayed,
    )


def compare_resumption(target: Target, source: Case, first: int, directory: Path) -> Row:
    """What went on with step `first` from a checkpoint of another topology with plain torch that never stopped."""
    case, mine = target.case, _load(directory, target.name(source))
    return _compare(
        mine,
        _part(_load(directory, case.reference), first, len(mine["loss"])),
        title=f"{_title(case)} {case.precision} {case.gate} from a checkpoint of {_title(source)}",
        cells=[],
        bounds=BOUNDS[f"{case.precision} resumed"],
        first=first,
    )


def _part(reference: dict[str, Array], first: int, number: int) -> dict[str, Array]:
    """Of so many steps."""
    last = first - 1 + number
    gradient = GRADIENT if first == 1 else LATER + GRADIENT
    weight = WEIGHT if last == len(reference["loss"]) else EARLY + WEIGHT
    part = {name: reference[name][first - 1 : last] for name in ("loss", "norm", "served")}
    for begins, prefix in ((gradient, GRADIENT), (weight, WEIGHT)):
        part |= {name.replace(begins, prefix, 1): value for name, value in reference.items() if name.startswith(begins)}
    return part


def worst(target: Case, rows: Sequence[Row]) -> Row:
    """Of one topology that went on from the checkpoints of several others."""
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
    """Plain torch in bf16 with itself in fp32."""
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
    mine: dict[str, Array],
    theirs: dict[str, Array],
    *,
    title: str,
    cells: list[str],
    bounds: dict[str, float],
    replayed: bool = False,
    first: int = 1,
) -> Row:
    """first: number of the first step."""
    found = [_distances(view, theirs, first) for view in _views(mine)]
    served, expected = (outcome["served"].reshape(-1, NUM_EXPERTS) for outcome in (mine, theirs))
    return Row(
        title=title,
        cells=cells,
        deviations={
            key: Deviation(value=value, where=where, bound=bounds.get(key))
            for key in found[0]
            for value, where in [max(distances[key] for distances in found)]
        },
        moved=int((served != expected).any(axis=1).sum()),
        tokens=int(expected.any(axis=1).sum()),
        replayed=replayed,
    )


def _views(mine: dict[str, Array]) -> Iterator[dict[str, Array]]:
    """The first process's tensors, and where another's differ, those that differ most."""
    own = {name: value for name, value in mine.items() if not name.endswith((LARGEST, SMALLEST))}
    yield own
    for ending in (LARGEST, SMALLEST):
        if others := {name.removesuffix(ending): value for name, value in mine.items() if name.endswith(ending)}:
            yield {**own, **others}


def _distances(mine: dict[str, Array], theirs: dict[str, Array], first: int) -> dict[str, tuple[float, str]]:
    """By `Quantity`, with the tensor or step."""
    return {
        "first_loss": (_distance(mine["loss"][:1], theirs["loss"][:1]), f"loss of step {first}"),
        "first_gradient": _worst(mine, theirs, GRADIENT),
        "first_norm": (_distance(mine["norm"][:1], theirs["norm"][:1]), f"clip norm of step {first}"),
        "loss": _worst_step(mine, theirs, "loss", first),
        "norm": _worst_step(mine, theirs, "norm", first),
        "weight": _worst(mine, theirs, WEIGHT),
    }


def _distance(mine: Array, theirs: Array) -> float:
    """Largest difference in units of the largest reference entry; infinite for other shapes and for NaN."""
    if mine.shape != theirs.shape or not (np.isfinite(mine).all() and np.isfinite(theirs).all()):
        return float("inf")
    difference = float(np.abs(mine.astype(np.float64) - theirs).max(initial=0.0))
    size = float(np.abs(theirs).max(initial=0.0))
    if not difference:
        return 0.0
    return difference / size if size else float("inf")


def _worst(mine: dict[str, Array], theirs: dict[str, Array], prefix: str) -> tuple[float, str]:
    """Of all tensors of a kind, with its name."""
    names = {name for name in (*mine, *theirs) if name.startswith(prefix)}
    nothing = np.zeros(0)
    found = [(_distance(mine.get(name, nothing), theirs.get(name, nothing)), name) for name in sorted(names)]
    return max(found)


def _worst_step(mine: dict[str, Array], theirs: dict[str, Array], what: str, first: int) -> tuple[float, str]:
    each = [(_distance(a, b), step) for step, (a, b) in enumerate(zip(mine[what], theirs[what], strict=True), first)]
    value, step = max(each)
    return value, f"{'clip norm' if what == 'norm' else what} of step {step}"
