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
    for aspect, consequence, identity, value in _ASPECTS:
        groups: dict[str, list[RunResults]] = {}
        for run in runs:
            groups.setdefault(repr(identity(run)), []).append(run)
        if len(groups) > 1:
            values = [(value(group[0]), [run.label for run in group]) for group in groups.values()]
            found.append(Difference(aspect=aspect, consequence=consequence, values=values))
    tokens = [(_tokens(run), run.label) for run in runs]
    known = [count for count, _ in tokens if count]
    if known and max(known) > _SAME_TOKENS * min(known):
        values = [(quantity(count), [label]) for count, label in tokens]
        found.append(Difference(aspect="target tokens seen", consequence="they are not at equal cost", values=values))
    return found


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
        f"{rows[0].id} {signed(_difference(rows[0], group.dense))}"
        for group in groups
        if group.dense
        for rows in group.systems
        if rows[0].experts
    ]
    return text + (f" Against the dense model of equal FLOPs: {', '.join(compared)}." if compared else "")


def _difference(row: CostRow, dense: CostRow) -> float:
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


def _part(*names: str) -> Callable[[RunResults], Any]:
    return lambda run: {name: run.record.config.get(name) for name in names}


def _budget(run: RunResults) -> tuple[Any, Any]:
    train = run.record.config.get("train", {})
    return train.get("max_tokens"), train.get("max_steps")


def _say_budget(run: RunResults) -> str:
    tokens, steps = _budget(run)
    said = [f"{quantity(tokens)} target tokens"] if tokens else []
    return ", ".join(said + ([f"{integer(steps)} steps"] if steps else [])) or "no limit"


def _say_batches(run: RunResults) -> str:
    batch = run.record.config.get("batch", {})
    shapes = ", ".join(f"{s.get('rows')} rows of {s.get('source')}" for s in batch.get("shapes", []))
    return f"{batch.get('groups_per_step')} groups a step ({shapes})"


def _say_decoding(run: RunResults) -> str:
    decode = run.record.config.get("decode", {})
    return f"{decode.get('search')}, beam {decode.get('beam')}"


def _tests(run: RunResults) -> list[tuple[str, int, str]]:
    return sorted({(row.pair, row.n_test, row.signature) for row in run.scores if row.system == SYSTEM})


_UNEQUAL = "ΔBLEU between them mixes this with what is compared"
_ASPECTS: tuple[tuple[str, str, Callable[[RunResults], Any], Callable[[RunResults], str]], ...] = (
    (
        "language pairs",
        "their means are over different languages",
        lambda run: sorted(run.record.pairs),
        lambda run: f"{len(run.record.pairs)} pairs",
    ),
    (
        "training data",
        _UNEQUAL,
        lambda run: (_part("corpus")(run), sorted(run.record.train_pairs.items())),
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
    (
        "vocabularies",
        "their losses are per token of different tokens and do not compare",
        _part("vocab"),
        lambda run: f"{run.record.config.get('vocab', {}).get('target_size')} target pieces",
    ),
    ("batches", _UNEQUAL, _part("batch"), _say_batches),
    ("budget", _UNEQUAL, _budget, _say_budget),
    (
        "bilingual baselines",
        "their zero lines differ",
        _part("baselines"),
        lambda run: f"{len(run.record.config.get('baselines') or ())} recipes of baselines",
    ),
    ("decoding", _UNEQUAL, _part("decode"), _say_decoding),
)
