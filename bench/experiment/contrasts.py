"""Contrasts of systems, such as `moe_8e - dense`, with intervals that count test sentences and seeds.

A contrast is a sum of scores with signs. Of four systems it is an interaction: in
`moe_32e_12l - dense_12l - moe_32e + dense`, what experts add to a deep model beyond what they add to a shallow one.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from bench.output import Row, aligned, number
from eval.number_format import signed
from eval.records.results import RunResults, System, group_seeds, load_results
from eval.records.run_record import TEST_SETS, load_run
from eval.records.scores import BASELINE, METRICS, SYSTEM, load_scores
from eval.score.macro import resource_classes
from eval.score.paired_systems import PairedScores, pair_by_metric
from eval.score.significance import NUM_RESAMPLES, Resampled, percentile_interval

# of the experiment, chosen before it was run (docs/experiment.md); all other contrasts are explorations
PRIMARY = (
    "moe_8e - dense",
    "moe_32e - moe_8e",
    "dense_12l - dense",
    "moe_32e_12l - dense_12l - moe_32e + dense",
    "dense - bilingual",
    "moe_8e - bilingual",
)
OWN = "own"  # the test sets of the runs' corpus
MULTI_WAY = "multi-way"
_FEWEST_PAIRS = 6  # with the same references, that are a group of their own
Seeds = tuple[int | None, ...]
Paired = Mapping[str, Mapping[str, Mapping[str, PairedScores]]]  # by metric, pair and label
COLUMNS = (
    *("test_set", "contrast", "metric", "resource", "num_pairs", "delta", "ci_low", "ci_high"),
    *("num_seeds", "seed_low", "seed_high"),
)


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """A sum of scores. terms: the sign and the label of each system; BASELINE are the first one's bilingual models."""

    text: str
    terms: tuple[tuple[int, str], ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the multilingual systems."""
        return tuple(label for _, label in self.terms if label != BASELINE)

    @property
    def first(self) -> str:
        """The label of the first multilingual system."""
        return self.labels[0]


def read_contrast(text: str) -> Contrast:
    """Return the contrast that a text such as `moe_8e - dense` says. Raises ValueError for another form."""
    words = ["+", *text.split()]
    signs, labels = words[::2], words[1::2]
    known_signs = {"+": 1, "-": -1}
    if len(signs) != len(labels) or not known_signs.keys() >= {*signs} or len(labels) < 2 or {*labels} == {BASELINE}:
        raise ValueError(f"{text!r} is no contrast; write systems with spaces and signs between, as 'moe_8e - dense'")
    return Contrast(text=text, terms=tuple((known_signs[s], label) for s, label in zip(signs, labels, strict=True)))


def compare(directories: Sequence[Path], texts: Sequence[str] = (), test_set: str = OWN) -> list[dict[str, Any]]:
    """Return a row for each contrast, metric and class of pairs: the mean over its pairs.

    Classes are all pairs, thirds by training pairs, and the same of those pairs whose test sets have one text. A
    contrast with bilingual models leaves out the pairs that have none; the thirds are those of all pairs. Of seeds it
    takes those that all of its systems have, since a seed draws the same batches for all of them.

    directories: of finished runs. Those that differ in the seed alone are one system: dense of dense_s1 and dense_s2.
    texts: the contrasts; by default those of PRIMARY whose systems are there.
    test_set: OWN, or the name of a further one that all runs have translated.
    Raises ValueError for an unknown system, a run that lacks the test set, or systems without a seed in common, and if
        there is no contrast.
    """
    systems = load_systems(directories)
    train_pairs = systems[0].runs[0].record.train_pairs
    if test_set != OWN:
        systems = [replace(one, runs=tuple(on_test_set(run, test_set) for run in one.runs)) for one in systems]
    system_of = {system.label: system for system in systems}
    with_baselines = {BASELINE} if all(_has_baselines(system) for system in systems) else set[str]()
    contrasts = [read_contrast(text) for text in texts or PRIMARY]
    if not texts:
        contrasts = [one for one in contrasts if {label for _, label in one.terms} <= {*system_of} | with_baselines]
    if unknown := [label for one in contrasts for _, label in one.terms if label not in {*system_of} | with_baselines]:
        raise ValueError(f"there is no system {unknown[0]!r}; choose among {', '.join([*system_of, *with_baselines])}")
    if not contrasts:
        raise ValueError(f"no primary contrast has its systems among {', '.join(system_of)}; name one by --of")
    pairs = [pair for pair in train_pairs if all(pair in system.runs[0].record.pairs for system in systems)]
    rows: list[dict[str, Any]] = []
    paired_at: dict[Seeds, Paired] = {}
    for contrast in contrasts:
        seeds = shared_seeds([system_of[label] for label in contrast.labels])
        if seeds not in paired_at:
            paired_at[seeds] = pair_by_metric([one for system in systems if (one := at_seeds(system, seeds))], pairs)
        paired, compared = paired_at[seeds], pairs
        if BASELINE in {label for _, label in contrast.terms}:
            compared = [pair for pair in pairs if paired["bleu"][pair][contrast.first].baseline is not None]
        classes = _classes({pair: train_pairs[pair] for pair in compared}, paired["bleu"], train_pairs)
        for metric in paired:
            for resource, of_class in classes.items():
                about = {"test_set": test_set, "contrast": contrast.text, "metric": metric, "resource": resource}
                difference = _difference(contrast, paired[metric], of_class)
                by_seed = _by_seed(contrast, system_of, seeds, metric, of_class)
                rows.append({**about, "num_pairs": len(of_class), **difference, **by_seed})
    return rows


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table for a terminal."""
    lines = [["contrast", "metric", "pairs", "", "difference", "95 %", "seeds", "by seed"]]
    for row in rows:
        interval = f"[{signed(row['ci_low'], 2)}, {signed(row['ci_high'], 2)}]"
        by_seed = f"{signed(row['seed_low'], 2)} to {signed(row['seed_high'], 2)}" if row["num_seeds"] > 1 else ""
        cells = [METRICS[row["metric"]].title, row["resource"], number(row["num_pairs"])]
        lines.append([row["contrast"], *cells, signed(row["delta"], 2), interval, number(row["num_seeds"]), by_seed])
    return aligned(lines, left=["contrast", "metric", "pairs"])


def load_systems(directories: Sequence[Path]) -> list[System]:
    """Read runs, and group them by `systems_of`."""
    return systems_of(load_results([("", run) for run in directories]))


def systems_of(runs: Sequence[RunResults]) -> list[System]:
    """Group runs that differ in the seed alone.

    The label of a system of one run has no seed at its end either: moe_8e for moe_8e_s1.
    """
    return [
        replace(system, label=re.sub(r"_s\d+$", "", system.label)) if len(system.runs) == 1 else system
        for system in group_seeds(runs)
    ]


def on_test_set(run: RunResults, test_set: str) -> RunResults:
    """Return the run with its scores and translations of a further test set."""
    directory = run.directory / TEST_SETS / test_set
    if not (directory / "scores.csv").is_file():
        raise ValueError(f"{run.directory} has no scores of {test_set}; add it to score.test_sets and train again")
    record = load_run(directory)
    record = replace(run.record, pairs=record.pairs, languages=record.languages)
    return replace(run, directory=directory, record=record, scores=tuple(load_scores(directory / "scores.csv")))


def shared_seeds(systems: Sequence[System]) -> Seeds:
    """Return the seeds that all systems have, in order. Raises ValueError if there is none."""
    seeds_of = [[run.seed for run in system.runs] for system in systems]
    if shared := [seed for seed in seeds_of[0] if all(seed in seeds for seeds in seeds_of)]:
        return tuple(shared)
    labels = " and ".join(system.label for system in systems)
    raise ValueError(f"{labels} have no seed in common; train them with the same train.seed")


def at_seeds(system: System, seeds: Seeds) -> System | None:
    """Return a system with its runs of these seeds, None if it lacks one."""
    run_of = {run.seed: run for run in system.runs}
    return replace(system, runs=tuple(run_of[seed] for seed in seeds)) if {*seeds} <= {*run_of} else None


def _has_baselines(system: System) -> bool:
    return all(any(row.system == BASELINE for row in run.scores) for run in system.runs)


def _classes(
    train_pairs: Mapping[str, int], paired: Mapping[str, Mapping[str, PairedScores]], all_pairs: Mapping[str, int]
) -> dict[str, tuple[str, ...]]:
    """Return the pairs of each class.

    Thirds are those of all pairs of the runs, so that a test set without some of them has the same thirds.
    """
    classes = {}
    references = {pair: next(iter(paired[pair].values())).test_set.references for pair in train_pairs}
    by_text: dict[tuple[str, ...], list[str]] = {}
    for pair, text in references.items():
        by_text.setdefault(text, []).append(pair)
    multi_way = max(by_text.values(), key=len)
    groups = {"": [*train_pairs]}
    if _FEWEST_PAIRS <= len(multi_way) < len(train_pairs):
        groups[f"{MULTI_WAY}, "] = multi_way
    for prefix, group in groups.items():
        of_group = all_pairs if not prefix else {pair: train_pairs[pair] for pair in group}
        for resource, pairs in resource_classes(of_group).items():
            of_class = tuple(pair for pair in pairs if pair in group)
            if of_class:
                classes[f"{prefix}{resource}"] = of_class
    return classes


def _difference(
    contrast: Contrast, paired: Mapping[str, Mapping[str, PairedScores]], pairs: Sequence[str]
) -> dict[str, float]:
    """Return the mean over pairs, and its interval from joint resamples. paired: by pair and label, of one metric."""
    signed_scores = [
        (sign, _resampled(paired[pair], contrast, label)) for pair in pairs for sign, label in contrast.terms
    ]
    joint = np.zeros(NUM_RESAMPLES)
    for sign, score in signed_scores:
        assert score.joint is not None  # `pair_by_metric` draws them
        joint += sign * score.joint
    low, high = percentile_interval(joint / len(pairs))
    delta = sum(sign * score.score for sign, score in signed_scores) / len(pairs)
    return {"delta": delta, "ci_low": low, "ci_high": high}


def _resampled(by_label: Mapping[str, PairedScores], contrast: Contrast, label: str) -> Resampled:
    score = by_label[contrast.first].baseline if label == BASELINE else by_label[label].system
    assert score is not None  # `compare` looked for baselines
    return score


def _by_seed(
    contrast: Contrast, system_of: Mapping[str, System], seeds: Seeds, metric: str, pairs: Sequence[str]
) -> dict[str, float]:
    """Return the number of seeds, and the least and the greatest of their differences."""
    run_of = {(label, run.seed): run for label in contrast.labels for run in system_of[label].runs}
    differences = [
        sum(
            sign * _mean(run_of[contrast.first, seed], BASELINE, metric, pairs)
            if label == BASELINE
            else sign * _mean(run_of[label, seed], SYSTEM, metric, pairs)
            for sign, label in contrast.terms
        )
        for seed in seeds
    ]
    return {"num_seeds": len(seeds), "seed_low": min(differences), "seed_high": max(differences)}


def _mean(run: RunResults, model: str, metric: str, pairs: Sequence[str]) -> float:
    scores = {row.pair: row.score for row in run.scores if (row.system, row.metric) == (model, metric)}
    return fmean(scores[pair] for pair in pairs)
