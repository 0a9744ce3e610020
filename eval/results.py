"""Finished runs as the report compares them, and the systems that they are seeds of."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from eval.run_record import Json, RunRecord, load_run
from eval.scores import ScoreRow, SignificanceRow, load_scores, load_significance

SEED = "seed"


@dataclass(frozen=True, kw_only=True)
class RunResults:
    """One run. label: unique among those compared. gains: of SYSTEM over BASELINE, empty without baselines."""

    label: str
    directory: Path
    record: RunRecord
    scores: tuple[ScoreRow, ...]
    gains: tuple[SignificanceRow, ...]

    @property
    def is_moe(self) -> bool:
        """Whether its multilingual model has experts."""
        moe = self.record.config.get("model", {}).get("moe", {})
        return bool(moe.get("num_experts"))


@dataclass(frozen=True, kw_only=True)
class System:
    """Runs of one configuration that differ in their seed alone, in the order given."""

    label: str
    runs: tuple[RunResults, ...]


def find_run(text: str, below: Path) -> tuple[str, Path]:
    """Label, empty where none is given, and directory of `name`, `path`, `label=name` or `label=path`; a name is one of
    a run below a directory. Raises ValueError where there is no such run."""
    label, _, named = text.rpartition("=")
    for directory in (below / named, Path(named)):
        if (directory / "run.json").is_file():
            return label, directory
    raise ValueError(f"{named} is no finished run: neither {below / named} nor {named} has a run.json")


def load_results(directories: Iterable[tuple[str, Path]]) -> list[RunResults]:
    """Runs by (label, directory); an empty label means the directory's name. Raises ValueError naming what is missing,
    and for a label that two runs have."""
    runs: list[RunResults] = []
    for label, directory in directories:
        run = RunResults(
            label=label or directory.resolve().name,
            directory=directory,
            record=load_run(directory),
            scores=tuple(load_scores(directory / "scores.csv")),
            gains=tuple(load_significance(directory / "significance.csv")),
        )
        if any(run.label == other.label for other in runs):
            raise ValueError(f"two runs are called {run.label!r}; name one of them otherwise, as other={directory}")
        runs.append(run)
    return runs


def group_seeds(runs: Sequence[RunResults]) -> list[System]:
    """Systems in the order of their first runs; runs of one system differ in their seed, and in nothing else that
    decides a result. One of several runs is labelled by what its runs' labels share."""
    groups: list[list[RunResults]] = []
    for run in runs:
        same = (group for group in groups if _without_seed(group[0]) == _without_seed(run))
        found = next((group for group in same if _seed(run) not in map(_seed, group)), None)
        if found is None:
            groups.append(found := [])
        found.append(run)
    systems: list[System] = []
    for group in groups:
        taken = {run.label for run in runs} - {run.label for run in group} | {system.label for system in systems}
        label = _common_label([run.label for run in group])
        systems.append(System(label=group[0].label if label in taken else label, runs=tuple(group)))
    return systems


def _seed(run: RunResults) -> object:
    return run.record.config.get("train", {}).get(SEED)


def _without_seed(run: RunResults) -> Json:
    config = run.record.config
    train = {key: value for key, value in config.get("train", {}).items() if key != SEED}
    ignored = ("name", "recipe", "runtime", "layout", "train")
    return {**{key: value for key, value in config.items() if key not in ignored}, "train": train}


def _common_label(labels: Sequence[str]) -> str:
    """dense of dense_s1 and dense_s2."""
    if len(labels) == 1:
        return labels[0]
    columns = takewhile(lambda letters: len(set(letters)) == 1, zip(*labels, strict=False))
    shared = "".join(letters[0] for letters in columns)
    return re.sub(r"[-_=. ]+(s|seed)?[-_=. ]*$", "", shared) or labels[0]
