"""Finished runs as the report compares them. Runs that differ in their seed alone are one system."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from eval.records.decisive import decisive
from eval.records.faults import REFERENCE, FaultRow, load_faults
from eval.records.run_record import Json, RunRecord, load_run
from eval.records.scores import (
    BASELINE,
    Change,
    ScoreRow,
    SignificanceRow,
    load_forgetting,
    load_scores,
    load_significance,
)

SEED = "seed"
RESERVED = {BASELINE: "the bilingual models", REFERENCE: "the reference translations"}  # labels that no run may have


@dataclass(frozen=True, kw_only=True)
class RunResults:
    """The records and scores of one run.

    label: a name that no other run of the comparison has.
    gains: comparisons of SYSTEM with BASELINE, empty without baselines.
    forgetting: comparisons of SYSTEM with INITIAL, empty where the training began from random weights.
    faults: counts of faulty translations, empty for runs of versions that did not count them.
    """

    label: str
    directory: Path
    record: RunRecord
    scores: tuple[ScoreRow, ...]
    gains: tuple[SignificanceRow, ...]
    forgetting: tuple[Change, ...] = ()
    faults: tuple[FaultRow, ...] = ()

    @property
    def is_moe(self) -> bool:
        """True if the multilingual model of the run has experts."""
        moe = self.record.config.get("model", {}).get("moe", {})
        return bool(moe.get("num_experts"))

    @property
    def seed(self) -> int | None:
        """The seed of the multilingual model's training, None if the record has none."""
        seed: int | None = self.record.config.get("train", {}).get(SEED)
        return seed

    @property
    def description(self) -> str:
        """The model in words, such as `multilingual MoE, 8 experts`."""
        kind = f"MoE, {self.record.config['model']['moe']['num_experts']} experts" if self.is_moe else "dense model"
        return f"multilingual {kind}" if len(self.record.pairs) > 1 else kind


@dataclass(frozen=True, kw_only=True)
class System:
    """Runs of one configuration that differ in their seed alone, in the order given."""

    label: str
    runs: tuple[RunResults, ...]


def find_run(text: str, below: Path) -> tuple[str, Path]:
    """Return the label (empty if none is given) and the directory of a run.

    text: `name`, `path`, `label=name` or `label=path`.
    below: the directory that has the named runs.
    Raises ValueError if the run does not exist or is not finished.
    """
    label, _, name = text.rpartition("=")
    for directory in (below / name, Path(name)):
        if (directory / "run.json").is_file():
            return label, directory
    raise ValueError(f"{name} is no finished run: neither {below / name} nor {name} has a run.json")


def load_results(directories: Iterable[tuple[str, Path]]) -> list[RunResults]:
    """Read runs, each given as (label, directory). The directory's name takes the place of an empty label.

    Raises ValueError for missing files, if two runs have the same label, and if one is called as the report calls
    the baselines or the references.
    """
    runs: list[RunResults] = []
    for label, directory in directories:
        run = RunResults(
            label=label or directory.resolve().name,
            directory=directory,
            record=load_run(directory),
            scores=tuple(load_scores(directory / "scores.csv")),
            gains=tuple(load_significance(directory / "significance.csv")),
            forgetting=tuple(load_forgetting(directory)),
            faults=tuple(load_faults(directory)),
        )
        if run.label in RESERVED:
            raise ValueError(
                f"{run.label!r} is what a report calls {RESERVED[run.label]}; name the run otherwise, as "
                f"other={directory}"
            )
        if any(run.label == earlier.label for earlier in runs):
            raise ValueError(f"two runs are called {run.label!r}; name one of them otherwise, as other={directory}")
        runs.append(run)
    return runs


def group_seeds(runs: Sequence[RunResults]) -> list[System]:
    """Group the runs that differ in their seed, and in no other setting that affects a result.

    The systems are in the order of their first runs. A system of several runs is labelled by the text that their labels
    have in common.
    """
    groups: list[list[RunResults]] = []
    for run in runs:
        equal_groups = (group for group in groups if without_seed(group[0]) == without_seed(run))
        seeds_of = next((group for group in equal_groups if run.seed not in {other.seed for other in group}), None)
        if seeds_of is None:
            groups.append(seeds_of := [])
        seeds_of.append(run)
    systems: list[System] = []
    for group in groups:
        of_others = {run.label for run in runs} - {run.label for run in group}
        used_labels = {*RESERVED, *of_others, *(system.label for system in systems)}
        label = _common_label([run.label for run in group])
        systems.append(System(label=group[0].label if label in used_labels else label, runs=tuple(group)))
    return systems


def without_seed(run: RunResults) -> Json:
    """Return the settings that decide a run's results, without the seed of its training and of its baselines'.

    Where a run executes is left out too.
    """
    config = decisive(run.record.config, without=("train.seed",))
    return {key: value for key, value in config.items() if key not in ("runtime", "layout") and value != {}}


def _common_label(labels: Sequence[str]) -> str:
    """Return what labels have in common: `dense` for dense_s1 and dense_s2."""
    if len(labels) == 1:
        return labels[0]
    columns = takewhile(lambda letters: len(set(letters)) == 1, zip(*labels, strict=False))
    prefix = "".join(letters[0] for letters in columns)
    return re.sub(r"[-_=. ]+(s|seed)?[-_=. ]*$", "", prefix) or labels[0]
