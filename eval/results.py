"""Finished runs as the report compares them, and the systems that they are seeds of."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
    """Systems in the order of their first runs. One of several runs is labelled by what its runs' labels share."""
    groups: dict[str, list[RunResults]] = {}
    for run in runs:
        groups.setdefault(repr(_without_seed(run.record.config)), []).append(run)
    return [System(label=_common_label(group), runs=tuple(group)) for group in groups.values()]


def _without_seed(config: Json) -> Json:
    train = {key: value for key, value in config.get("train", {}).items() if key != SEED}
    ignored = ("name", "runtime", "train")
    return {**{key: value for key, value in config.items() if key not in ignored}, "train": train}


def _common_label(runs: Sequence[RunResults]) -> str:
    if len(runs) == 1:
        return runs[0].label
    first, *others = (run.label for run in runs)
    size = 0
    while all(len(other) > size and len(first) > size and other[size] == first[size] for other in others):
        size += 1
    return first[:size].rstrip("_-= s") or first
