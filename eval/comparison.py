"""What several runs are compared on: whether they are equal in all but what is compared, and what differs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eval.cost_table import CostRow, FlopsGroup
from eval.number_format import MISSING, integer, quantity, signed
from eval.results import RunResults
from eval.run_record import Json
from eval.scores import SYSTEM

_SAME_TOKENS = 1.02  # the last step of a budget may be a whole batch over it


@dataclass(frozen=True, kw_only=True)
class Difference:
    """An aspect in which runs must be equal to be compared, and are not. values: (value, labels of its runs)."""

    aspect: str
    consequence: str
    values: Sequence[tuple[str, Sequence[str]]]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of several runs: those that differ, with a cell a run, and those that all share."""

    labels: Sequence[str]
    differing: Sequence[tuple[str, Sequence[str]]]
    common: Mapping[str, str]


def differences(runs: Sequence[RunResults]) -> list[Difference]:
    """What keeps runs from being compared at equal data, tests, batches and budget; empty for one run."""
    found = []
    for aspect, consequence, identity, value in _DATA:
        if len({repr(identity(run)) for run in runs}) > 1:
            found.append(_difference(aspect, consequence, [(run.label, identity(run), value(run)) for run in runs]))
    for aspect, consequence, names in _SETTINGS:
        parts = settings({run.label: {name: _setting(run.record.config, name) for name in names} for run in runs})
        if parts.differing:
            cells: dict[str, list[str]] = {label: [] for label in parts.labels}
            for name, values in parts.differing[:_SAID]:
                for label, cell in zip(parts.labels, values, strict=True):
                    cells[label].append(f"{name}={cell}")
            more = f" and {len(parts.differing) - _SAID} more" if len(parts.differing) > _SAID else ""
            said = [(label, lines, ", ".join(lines) + more) for label, lines in cells.items()]
            found.append(_difference(aspect, consequence, said))
    tokens = [(run.label, _tokens(run)) for run in runs]
    known = [count for _, count in tokens if count]
    if known and max(known) > _SAME_TOKENS * min(known):
        counts = [(label, count, quantity(count)) for label, count in tokens]
        found.append(_difference("target tokens seen", "they are not at equal cost", counts))
    return found


def _difference(aspect: str, consequence: str, runs: Sequence[tuple[str, Any, str]]) -> Difference:
    """runs: (label, what must be equal, how it is said)."""
    groups: dict[str, tuple[str, list[str]]] = {}
    for label, identity, said in runs:
        groups.setdefault(repr(identity), (said, []))[1].append(label)
    return Difference(aspect=aspect, consequence=consequence, values=list(groups.values()))


def settings(configs: Mapping[str, Json]) -> Settings:
    """Nested settings by label, as `a.b=value` lines, cut into those that differ and those that do not."""
    flat = {label: dict(_flatten(config)) for label, config in configs.items()}
    names = dict.fromkeys(name for lines in flat.values() for name in lines)
    cells = {name: [lines.get(name, MISSING) for lines in flat.values()] for name in names}
    return Settings(
        labels=list(configs),
        differing=[(name, values) for name, values in cells.items() if len(set(values)) > 1],
        common={name: values[0] for name, values in cells.items() if len(set(values)) == 1},
    )


def headline_of(groups: Sequence[FlopsGroup], num_pairs: int) -> str:
    """What several systems come to: the best of them, and each against the dense one of equal FLOPs."""
    rows = [rows[0] for group in groups for rows in group.systems]
    highest = max(row.numbers["bleu"] or 0.0 for row in rows)
    best = [row for row in rows if f"{row.numbers['bleu'] or 0.0:.1f}" == f"{highest:.1f}"]
    gain = max(best, key=lambda row: row.numbers["bleu"] or 0.0).numbers["delta_bleu"]
    pairs = f"{num_pairs} language pairs" if num_pairs > 1 else "one language pair"
    names = " and ".join(row.id for row in best) + (" have" if len(best) > 1 else " has")
    text = f"{names} the highest mean BLEU of {len(rows)} systems over {pairs}, {highest:.1f}"
    if gain is None:
        text += ", without bilingual baselines to compare with."
    else:
        text += f", {_against(gain)} the bilingual baselines."
    compared = [
        f"{rows[0].id} {signed(_over(rows[0], group.dense))}"
        for group in groups
        if group.dense
        for rows in group.systems
        if rows[0].experts
    ]
    return text + (f" Against the dense model of equal FLOPs: {', '.join(compared)}." if compared else "")


def _over(row: CostRow, dense: CostRow) -> float:
    return (row.numbers["bleu"] or 0.0) - (dense.numbers["bleu"] or 0.0)


def _against(difference: float) -> str:
    amount = f"{abs(difference):.1f}"
    return "level with" if amount == "0.0" else f"{amount} {'above' if difference > 0 else 'below'}"


def _flatten(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Lists of settings are numbered from 0."""
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        value = {str(place): item for place, item in enumerate(value)}
    if not isinstance(value, dict) or not value:
        return [(prefix, str(value))]
    return [line for key, item in value.items() for line in _flatten(item, f"{prefix}.{key}" if prefix else key)]


def _tokens(run: RunResults) -> float | None:
    ledgers = run.record.systems.get(SYSTEM) or [{}]
    return ledgers[0].get("tokens")


def _setting(config: Json, name: str) -> Any:
    """Of a dotted name; None where it is not set."""
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
_SAID = 4  # settings of an aspect that are named; the others are counted
