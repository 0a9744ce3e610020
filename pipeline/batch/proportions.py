"""How often each source of each pair is drawn, phase by phase of the curriculum (docs/mixing.md)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import numpy.typing as npt

from pipeline.batch.mixture_config import MixtureConfig, PairGroup, SourceRule
from pipeline.spelling import suggestion

Floats = npt.NDArray[np.float64]
Sources = Sequence[tuple[str, int]]  # names and rows, one after the other; a name may come again
FULL = 1 - 1e-9  # shares that sum to 1 up to rounding


@dataclass(frozen=True, kw_only=True)
class Unit:
    """What is mixed: the rows begin to end - 1 of a pair, which are of one source. pair: its index."""

    pair: int
    source: str
    begin: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Steps with one mixture, from `from_step` (the first is 1) to the next phase. probabilities: of each unit."""

    from_step: int
    probabilities: Floats


def units(pairs: Sequence[Sources]) -> list[Unit]:
    """Of the sources of each pair, in order."""
    found = []
    for index, sources in enumerate(pairs):
        end = 0
        for source, rows in sources:
            found.append(Unit(pair=index, source=source, begin=end, end=end + rows))
            end += rows
    return found


def check_mixture(config: MixtureConfig, pairs: Mapping[str, Sources]) -> None:
    """Raise ValueError where a mixture cannot be drawn from pairs with these sources."""
    phases(config, list(pairs), units(list(pairs.values())))


def groups_of(config: MixtureConfig, pairs: Sequence[str]) -> list[str]:
    """Name of the group of each pair, "" outside all. Raises ValueError on patterns and shares that cannot be meant."""
    found = [next((name for name, group in config.groups.items() if _matches(pair, group.pairs)), "") for pair in pairs]
    for name, group in config.groups.items():
        path = f"batch.mixture.groups.{name}"
        _check_patterns(f"{path}.pairs", group.pairs, pairs, "pairs")
        if name not in found:
            raise ValueError(f"{path} gets no pair: groups before it take all that it names; put it before them")
    return found


def phases(config: MixtureConfig, pairs: Sequence[str], units: Sequence[Unit]) -> list[Phase]:
    """The mixtures of a run, in order; the last has no end. Raises ValueError on whatever cannot be meant."""
    plan = _Plan(config, pairs, units)
    steps = sorted({1, *(step for begin, end in plan.periods if begin < end for step in (begin, end) if step < NEVER)})
    found = [Phase(from_step=step, probabilities=plan.probabilities(step)) for step in steps]
    for index, unit in enumerate(units):
        if unit.rows and not any(phase.probabilities[index] > 0 for phase in found):
            where = f"source {unit.source!r} of {pairs[unit.pair]}"
            raise ValueError(f"batch.mixture: {where} is never drawn; its group and its source have no step in common")
    return found


NEVER = 1 << 62


class _Plan:
    """The rules of each unit. periods: its first step, and the first step without it."""

    def __init__(self, config: MixtureConfig, pairs: Sequence[str], units: Sequence[Unit]) -> None:
        self.config, self.pairs, self.units = config, pairs, units
        self.groups = groups_of(config, pairs)
        self.rules = [self._rule(unit) for unit in units]
        self._check_sources()
        self.rows = np.array([unit.rows for unit in units], dtype=np.float64)
        weights = [config.sources[rule].weight if rule else 1.0 for rule in self.rules]
        self.counted = self.rows * np.array(weights)
        self.pair_of = np.array([unit.pair for unit in units])
        self.periods = [self._period(unit, rule) for unit, rule in zip(units, self.rules, strict=True)]

    def probabilities(self, step: int) -> Floats:
        """Of each unit at a step."""
        active = np.array([begin <= step < end for begin, end in self.periods]) & (self.rows > 0)
        if not active.any():
            raise ValueError(
                f"batch.mixture: no pair is drawn from step {step} on; let a group begin earlier or leave later"
            )
        counted = np.where(active, self.counted, 0.0)
        sizes: Floats = np.bincount(self.pair_of, weights=counted, minlength=len(self.pairs)).astype(np.float64)
        of_pair = self._pairs(sizes, step)
        inside = np.zeros(len(self.units))
        for pair in np.flatnonzero(sizes).tolist():
            mine = np.flatnonzero(active & (self.pair_of == pair))
            shares = {name: rule.share for name, rule in self.config.sources.items()}
            what = f"the sources of {self.pairs[pair]}"
            inside[mine] = _shared([self.rules[u] for u in mine], counted[mine], counted[mine], shares, what, step)
        return _bounded(of_pair[self.pair_of] * inside, np.where(active, self.rows, 0.0), self.config.max_repeats)

    def _pairs(self, sizes: Floats, step: int) -> Floats:
        """Of each pair, of which `sizes` rows count."""
        config = self.config
        named = [config.groups[name] if name else PairGroup(pairs=["*"]) for name in self.groups]
        sizes = np.array([min(n, group.cap or config.cap or n) for n, group in zip(sizes, named, strict=True)])
        inner = np.array([group.temperature or config.temperature for group in named])
        active = np.flatnonzero(sizes)
        outer_mass, inner_mass = sizes[active] ** (1 / config.temperature), sizes[active] ** (1 / inner[active])
        shares = {name: group.share for name, group in config.groups.items()}
        probabilities = np.zeros(len(self.pairs))
        keys = [self.groups[pair] for pair in active.tolist()]
        probabilities[active] = _shared(keys, outer_mass, inner_mass, shares, "groups of pairs", step)
        return probabilities

    def _rule(self, unit: Unit) -> str:
        """Name of the first rule that names a unit, "" for none."""
        return next((name for name, rule in self.config.sources.items() if self._names(rule, unit)), "")

    def _names(self, rule: SourceRule, unit: Unit) -> bool:
        return _matches(unit.source, rule.sources) and _matches(self.pairs[unit.pair], rule.pairs)

    def _check_sources(self) -> None:
        names = sorted({unit.source for unit in self.units})
        for name, rule in self.config.sources.items():
            path = f"batch.mixture.sources.{name}"
            _check_patterns(f"{path}.pairs", rule.pairs, self.pairs, "pairs")
            _check_patterns(f"{path}.sources", rule.sources, names, "sources")
            if not any(self._names(rule, unit) and unit.rows for unit in self.units):
                raise ValueError(f"{path}: none of its pairs has rows of its sources; there are {self._inventory()}")
            if name not in self.rules:
                raise ValueError(f"{path} gets nothing: rules before it take all that it names; put it before them")

    def _inventory(self) -> str:
        return ", ".join(f"{self.pairs[unit.pair]}/{unit.source} ({unit.rows})" for unit in self.units[:20])

    def _period(self, unit: Unit, rule: str) -> tuple[int, int]:
        rules: list[PairGroup | SourceRule] = []
        if self.groups[unit.pair]:
            rules.append(self.config.groups[self.groups[unit.pair]])
        if rule:
            rules.append(self.config.sources[rule])
        begin = max((r.from_step for r in rules), default=1)
        return begin, min((r.until_step or NEVER for r in rules), default=NEVER)


def _shared(
    keys: Sequence[str], outer: Floats, inner: Floats, shares: dict[str, float | None], what: str, step: int
) -> Floats:
    """Probabilities of items, each under a key: a key with a share has that, the others divide the rest as their sums
    of `outer`; inside a key, items go by `inner`. Without others, shares are relative to each other."""
    fixed = {key: share for key in dict.fromkeys(keys) if (share := shares.get(key)) is not None}
    total, open_mass = sum(fixed.values()), sum(m for key, m in zip(keys, outer, strict=True) if key not in fixed)
    if total > 2 - FULL or (total >= FULL and open_mass > 0):
        others = " and leave nothing for the others" if total <= 2 - FULL else ""
        named = ", ".join(f"{key} {share}" for key, share in fixed.items())
        raise ValueError(
            f"batch.mixture: shares of {what} sum to {total:g}{others} at step {step} ({named}); lower them below 1"
        )
    probabilities = np.zeros(len(keys))
    for key in dict.fromkeys(keys):
        mine = np.array([other == key for other in keys])
        rest = (1 - total) * outer[mine].sum() / open_mass if key not in fixed else 0.0
        mass = fixed.get(key, rest) / (1.0 if open_mass > 0 else total)
        probabilities[mine] = mass * inner[mine] / inner[mine].sum()
    return probabilities


def _bounded(probabilities: Floats, rows: Floats, max_repeats: float) -> Floats:
    """No more than max_repeats times the share of rows; the excess goes to the others, in proportion."""
    if not max_repeats:
        return probabilities
    limits = max_repeats * rows / rows.sum()
    result, held = probabilities.copy(), np.zeros(len(rows), dtype=bool)
    while (over := ~held & (result > limits * (1 + 1e-12))).any():
        held |= over
        result[held] = limits[held]
        if others := result[~held].sum():
            result[~held] *= (1 - limits[held].sum()) / others
    bounded: Floats = result / result.sum()
    return bounded


def _check_patterns(path: str, patterns: Sequence[str], names: Sequence[str], what: str) -> None:
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ValueError(f"{path}: {pattern!r} matches none of the {what}{suggestion(pattern, names)}")


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
