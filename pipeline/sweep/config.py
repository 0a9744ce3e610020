"""Configuration of a sweep: its own settings, overrides of `train` in which commas sweep, and a launcher of Hydra's."""

import importlib.metadata
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

from pipeline.config import compose_tree
from pipeline.schema import build
from pipeline.spelling import suggestion

Comparison = Literal["active", "parameters"]
LAUNCHERS = ("basic", "joblib", "submitit_local", "submitit_slurm")
_LAUNCHER = ("hydra/launcher", "hydra.launcher")


@dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """The settings of configs/sweep.yaml, and overrides of the command line.

    overrides: settings of all points; they replace the axes of a grid that have the same key.
    launcher: overrides of Hydra's launcher.
    """

    name: str
    common: list[str]
    grids: list[list[str]]
    compare: list[Comparison]
    retries: int
    losses: list[float]
    overrides: list[str]
    launcher: list[str]

    def __post_init__(self) -> None:
        if self.name and (self.name.startswith(".") or re.search(r"[/=]", self.name)):
            raise ValueError(f"NAME={self.name!r} must be a plain directory name")
        if not self.grids:
            raise ValueError("grids is empty; give at least one list of overrides, [[]] for the recipe alone")
        if self.retries < 0:
            raise ValueError(f"retries={self.retries} must not be negative")
        if len(set(self.compare)) < len(self.compare):
            raise ValueError(f"compare={self.compare} names something twice")


def load_sweep(overrides: Sequence[str]) -> SweepConfig:
    """Return the configuration of `make sweep`. Raises ValueError with what to change."""
    own = {field.name for field in fields(SweepConfig)} - {"overrides", "launcher"} | {"experiment"}
    settings: list[str] = []
    launcher: list[str] = []
    train: list[str] = []
    for override in overrides:
        key = override.lstrip("+~").partition("=")[0]
        if key.split("/")[0].split(".")[0] == "hydra":
            launcher.append(_checked(override, key))
        else:
            (settings if key.split(".")[0] in own else train).append(override)
    _check_launcher(launcher)
    try:
        tree = compose_tree("sweep", [*settings, *launcher])
    except ValueError as error:
        if "hydra.launcher" not in str(error):
            raise
        names = " ".join(text for text in launcher if text.startswith(_LAUNCHER[1]))
        raise ValueError(
            f"{names}: not of the chosen launcher; its keys are in the documentation of its plugin"
        ) from error
    return build(SweepConfig, {**tree, "overrides": train, "launcher": launcher})


def _checked(override: str, key: str) -> str:
    if key != _LAUNCHER[0] and not key.startswith(f"{_LAUNCHER[1]}."):
        raise ValueError(f"{override}: of Hydra's own keys a sweep takes hydra/launcher= and hydra.launcher.*= alone")
    return override


def _check_launcher(launcher: Sequence[str]) -> None:
    for override in launcher:
        key, _, name = override.partition("=")
        if key != _LAUNCHER[0]:
            continue
        if name not in LAUNCHERS:
            raise ValueError(f"{override}: no such launcher{suggestion(name, LAUNCHERS)}")
        if name != "basic":
            _check_plugin(override, f"hydra-{name.split('_')[0]}-launcher")
        if name == "submitit_slurm" and shutil.which("sbatch") is None:
            raise ValueError(
                f"{override} needs sbatch, which is not on this host's PATH; start the sweep on a login node"
            )


def _check_plugin(override: str, package: str) -> None:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError as error:
        remedy = "install it by `.venv/bin/python -m pip install -e .[cluster]`"
        raise ValueError(f"{override} needs the package {package}: {remedy}") from error
