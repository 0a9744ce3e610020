"""The configurations that are measured: those to which rates are fitted, and those that are predicted."""

from typing import Any

from bench.plan.case import Case

CPU_CALIBRATION = (
    Case(dim=192, layers=3),
    Case(dim=384, layers=2),
    Case(dim=192, layers=4, experts=16, vocabulary=4000),
    Case(dim=320, layers=2, experts=4, vocabulary=12000, rows=4),
    Case(dim=192, layers=2, vocabulary=24000, rows=4),
    Case(dim=320, layers=4, rows=4, length=64, vocabulary=2000, recompute="selective"),
    Case(dim=192, layers=4, experts=16, rows=2, length=64, vocabulary=2000, recompute="layers"),
    Case(dim=256, layers=2, rows=2, length=256, vocabulary=4000, groups=8),
    Case(dim=320, layers=2, world=2, rows=4),
    Case(dim=192, layers=3, world=2, zero_stage=2),
    Case(dim=192, layers=4, experts=16, world=2, ep=2, vocabulary=4000),
    Case(dim=160, layers=5, experts=8, world=2, ep=2, rows=4),
    Case(dim=384, layers=2, world=2, mp=2, rows=4),
    Case(dim=192, layers=4, experts=4, world=2, mp=2, vocabulary=4000),
)
# Chosen when the planner's constants were fixed already, and unlike the configurations that they were fixed on.
CPU_TABLE = (
    Case(dim=224, layers=3),
    Case(dim=448, layers=3, groups=2),
    Case(dim=288, layers=5, recompute="selective"),
    Case(dim=640, layers=2, rows=4, groups=2),
    Case(dim=160, layers=6, experts=8),
    Case(dim=384, layers=4, experts=4, rows=4, recompute="all"),
    Case(dim=224, layers=4, experts=16, optimizer="adafactor"),
    Case(dim=320, layers=3, world=2, rows=16, length=64),
    Case(dim=384, layers=4, world=2, zero_stage=2, rows=4),
    Case(dim=224, layers=4, experts=16, world=2, ep=2),
    Case(dim=320, layers=4, experts=8, world=2, ep=2, zero_stage=2, recompute="layers"),
    Case(dim=256, layers=6, world=2, mp=2, vocabulary=16000),
)
QUICK_CALIBRATION = (Case(dim=32, layers=2, experts=4, rows=2, length=32, vocabulary=200, groups=2, world=2, ep=2),)
QUICK_TABLE = (Case(dim=32, layers=1, rows=2, length=32, vocabulary=200, groups=2),)


def _large(**values: Any) -> Case:
    """Return a case for a device with tens of GB."""
    return Case(**{"vocabulary": 32000, "rows": 32, "length": 256, "groups": 2, **values})


CUDA_CALIBRATION = (
    _large(dim=768, layers=4),
    _large(dim=1536, layers=2),
    _large(dim=768, layers=4, experts=16),
    _large(dim=1536, layers=2, precision="bf16"),
    _large(dim=768, layers=4, experts=16, precision="bf16"),
    _large(dim=768, layers=8, precision="bf16", recompute="selective"),
)
CUDA_TABLE = (
    _large(dim=512, layers=6),
    _large(dim=1024, layers=6),
    _large(dim=1024, layers=6, recompute="all"),
    _large(dim=512, layers=6, experts=32),
    _large(dim=1024, layers=4, experts=8, zero_stage=2),
    _large(dim=512, layers=6, precision="bf16"),
    _large(dim=1024, layers=6, precision="bf16"),
    _large(dim=2048, layers=6, precision="bf16"),
    _large(dim=1024, layers=6, precision="bf16", recompute="layers"),
    _large(dim=1024, layers=6, precision="bf16", recompute="all"),
    _large(dim=512, layers=6, experts=32, precision="bf16"),
    _large(dim=1024, layers=6, experts=16, precision="bf16", recompute="selective"),
)


def of(device: str, *, quick: bool) -> tuple[tuple[Case, ...], tuple[Case, ...]]:
    """Return the cases to which rates are fitted, and the cases that are predicted."""
    if quick:
        alone = tuple(case for case in QUICK_CALIBRATION if device == "cpu")
        return alone or QUICK_TABLE, QUICK_TABLE
    return (CUDA_CALIBRATION, CUDA_TABLE) if device == "cuda" else (CPU_CALIBRATION, CPU_TABLE)
