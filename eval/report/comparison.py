"""Comparison of the settings of several runs: which differ, and which differences make their scores incomparable."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eval.number_format import MISSING, integer, quantity
from eval.records.results import RunResults, without_seed
from eval.records.run_record import Json
from eval.records.scores import SYSTEM

_SAME_TOKENS = 1.02  # the largest ratio of equal budgets: the last step may exceed a budget by a batch


@dataclass(frozen=True, kw_only=True)
class Difference:
    """An aspect in which runs differ but must be equal to be compared. values: (value, labels of its runs)."""

    aspect: str
    consequence: str
    values: Sequence[tuple[str, Sequence[str]]]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of several runs.

    differing: (name, value in each run) of the settings that differ.
    common: values by name of the settings that are equal in all runs.
    """

    labels: Sequence[str]
    differing: Sequence[tuple[str, Sequence[str]]]
    common: Mapping[str, str]


def differences(runs: Sequence[RunResults]) -> list[Difference]:
    """Return the differences in data, tests, batches and budget that make the scores of runs incomparable."""
    rows = []
    for aspect, consequence, identity, value in _DATA:
        if len({repr(identity(run)) for run in runs}) > 1:
            rows.append(_difference(aspect, consequence, [(run.label, identity(run), value(run)) for run in runs]))
    for aspect, consequence, names in _SETTINGS:
        parts = settings({run.label: {name: _setting(without_seed(run), name) for name in names} for run in runs})
        if parts.differing:
            cells: dict[str, list[str]] = {label: [] for label in parts.labels}
            for name, values in parts.differing[:_MOST_NAMED]:
                for label, cell in zip(parts.labels, values, strict=True):
                    cells[label].append(f"{name}={cell}")
            unnamed = len(parts.differing) - _MOST_NAMED
            more = f" and {unnamed} more" if unnamed > 0 else ""
            texts = [(label, lines, ", ".join(lines) + more) for label, lines in cells.items()]
            rows.append(_difference(aspect, consequence, texts))
    tokens = [(run.label, _tokens(run)) for run in runs]
    counts = [count for _, count in tokens if count]
    if counts and max(counts) > _SAME_TOKENS * min(counts):
        texts_of_counts = [(label, count, quantity(count)) for label, count in tokens]
        rows.append(_difference("target tokens seen", "they are not at equal cost", texts_of_counts))
    return rows


def _difference(aspect: str, consequence: str, runs: Sequence[tuple[str, Any, str]]) -> Difference:
    """Group the runs by their value. runs: (label, value that must be equal, text of the value)."""
    groups: dict[str, tuple[str, list[str]]] = {}
    for label, identity, text in runs:
        groups.setdefault(repr(identity), (text, []))[1].append(label)
    return Difference(aspect=aspect, consequence=consequence, values=list(groups.values()))


def settings(configs: Mapping[str, Json]) -> Settings:
    """Sort nested settings by whether they differ. configs: settings by label of the run; their names become `a.b`."""
    flat = {label: dict(_flatten(config)) for label, config in configs.items()}
    names = dict.fromkeys(name for lines in flat.values() for name in lines)
    cells = {name: [lines.get(name, MISSING) for lines in flat.values()] for name in names}
    return Settings(
        labels=list(configs),
        differing=[(name, values) for name, values in cells.items() if len(set(values)) > 1],
        common={name: values[0] for name, values in cells.items() if len(set(values)) == 1},
    )


def _flatten(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Return (dotted name, value) of nested settings. Lists of settings are numbered from 0."""
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        value = {str(place): item for place, item in enumerate(value)}
    if not isinstance(value, dict) or not value:
        return [(prefix, str(value))]
    return [line for key, item in value.items() for line in _flatten(item, f"{prefix}.{key}" if prefix else key)]


def _tokens(run: RunResults) -> float | None:
    ledgers = run.record.systems.get(SYSTEM) or [{}]
    return ledgers[0].get("tokens")


def _setting(config: Json, name: str) -> Any:
    """Return the value of a dotted name, or None if it is not set."""
    value: Any = config
    for key in name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _tests(run: RunResults) -> list[tuple[str, int, str]]:
    return sorted({(row.pair, row.n_test, row.signature) for row in run.scores if row.system == SYSTEM})


_UNEQUAL = "a difference in BLEU has more than one cause"
_DATA: tuple[tuple[str, str, Callable[[RunResults], Any], Callable[[RunResults], str]], ...] = (
    (
        "language pairs",
        "their means are over different languages",
        lambda run: sorted(run.record.pairs),
        lambda run: f"{len(run.record.pairs)} pairs",
    ),
    (
        "training data",
        _UNEQUAL,
        lambda run: (run.record.config.get("corpus"), sorted(run.record.train_pairs.items())),
        lambda run: (
            f"{run.record.corpus.get('name') or 'corpus'}, {integer(sum(run.record.train_pairs.values()))} rows"
        ),
    ),
    (
        "test sets",
        "their scores are of different sentences, or counted otherwise",
        _tests,
        lambda run: f"{integer(sum({row.pair: row.n_test for row in run.scores}.values()))} sentences",
    ),
)
_SETTINGS = (
    ("vocabularies", "their losses are per token of different tokens and do not compare", ("vocab",)),
    ("batches", _UNEQUAL, ("batch",)),
    ("budget", _UNEQUAL, ("train.max_tokens", "train.max_steps")),
    ("bilingual baselines", "their zero lines differ", ("baselines",)),
    ("decoding", _UNEQUAL, ("decode",)),
)
_MOST_NAMED = 4  # settings of an aspect that are named; the others are counted
