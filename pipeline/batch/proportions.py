"""Probabilities of drawing from each source of each pair, for each phase of the curriculum (docs/mixing.md)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import numpy.typing as npt

from pipeline.batch.mixture_config import MixtureConfig, PairGroup, SourceRule
from pipeline.spelling import suggestion

Floats = npt.NDArray[np.float64]
Sources = Sequence[tuple[str, int]]  # names and rows, in the order of the rows; a name may come twice
FULL = 1 - 1e-9  # shares that sum to 1 up to rounding


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A part of the mixture: rows of one source in one pair.

    pair: index of the pair.
    source: name of the source.
    begin, end: the rows are begin to end - 1 of the pair.
    """

    pair: int
    source: str
    begin: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A period of training with one mixture. It lasts until the next phase.

    from_step: first step, counted from 1.
    probabilities: probability of each unit.
    """

    from_step: int
    probabilities: Floats


def units(pairs: Sequence[Sources]) -> list[Unit]:
    """List the units of all pairs: one for each source of a pair, in order."""
    units_of_pairs = []
    for index, sources in enumerate(pairs):
        end = 0
        for source, rows in sources:
            units_of_pairs.append(Unit(pair=index, source=source, begin=end, end=end + rows))
            end += rows
    return units_of_pairs


def check_mixture(config: MixtureConfig, pairs: Mapping[str, Sources]) -> None:
    """Raise ValueError if a mixture cannot be drawn from pairs with these sources."""
    phases(config, list(pairs), units(list(pairs.values())))


def groups_of(config: MixtureConfig, pairs: Sequence[str]) -> list[str]:
    """Return the name of the group of each pair, "" for a pair in no group.

    Raises ValueError if a pattern matches no pair, or a group gets none.
    """
    names = [next((name for name, group in config.groups.items() if _matches(pair, group.pairs)), "") for pair in pairs]
    for name, group in config.groups.items():
        path = f"batch.mixture.groups.{name}"
        _check_patterns(f"{path}.pairs", group.pairs, pairs, "pairs")
        if name not in names:
            raise ValueError(f"{path} gets no pair: groups before it take all that it names; put it before them")
    return names


def phases(config: MixtureConfig, pairs: Sequence[str], units: Sequence[Unit]) -> list[Phase]:
    """Return the mixtures of a run, in order. The last one has no end.

    Raises ValueError if a rule has no effect, shares sum to more than 1, or a source is never drawn.
    """
    plan = _Plan(config, pairs, units)
    steps = sorted({1, *(step for begin, end in plan.periods if begin < end for step in (begin, end) if step < NEVER)})
    mixtures = [Phase(from_step=step, probabilities=plan.probabilities(step)) for step in steps]
    for index, unit in enumerate(units):
        if unit.rows and not any(phase.probabilities[index] > 0 for phase in mixtures):
            where = f"source {unit.source!r} of {pairs[unit.pair]}"
            raise ValueError(f"batch.mixture: {where} is never drawn; its group and its source have no step in common")
    return mixtures


NEVER = 1 << 62


class _Plan:
    """The rules of each unit. periods: for each unit its first step, and the first later step without it."""

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
        """Return the probability of each unit at a step."""
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
            places = np.flatnonzero(active & (self.pair_of == pair))
            rules, rows = [self.rules[place] for place in places], counted[places]
            shares = {name: rule.share for name, rule in self.config.sources.items()}
            inside[places] = _shared(rules, rows, rows, shares, f"the sources of {self.pairs[pair]}", step)
        return _bounded(of_pair[self.pair_of] * inside, np.where(active, self.rows, 0.0), self.config.max_repeats)

    def _pairs(self, sizes: Floats, step: int) -> Floats:
        """Return the probability of each pair. sizes: rows that count for each pair."""
        config = self.config
        groups = [config.groups[name] if name else PairGroup(pairs=["*"]) for name in self.groups]
        sizes = np.array([min(n, group.cap or config.cap or n) for n, group in zip(sizes, groups, strict=True)])
        inner = np.array([group.temperature or config.temperature for group in groups])
        active = np.flatnonzero(sizes)
        outer_mass, inner_mass = sizes[active] ** (1 / config.temperature), sizes[active] ** (1 / inner[active])
        shares = {name: group.share for name, group in config.groups.items()}
        probabilities = np.zeros(len(self.pairs))
        keys = [self.groups[pair] for pair in active.tolist()]
        probabilities[active] = _shared(keys, outer_mass, inner_mass, shares, "groups of pairs", step)
        return probabilities

    def _rule(self, unit: Unit) -> str:
        """Return the name of the first rule that names a unit, "" if there is none."""
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

    def _period(self, unit: Unit, rule_name: str) -> tuple[int, int]:
        rules: list[PairGroup | SourceRule] = []
        if self.groups[unit.pair]:
            rules.append(self.config.groups[self.groups[unit.pair]])
        if rule_name:
            rules.append(self.config.sources[rule_name])
        begin = max((rule.from_step for rule in rules), default=1)
        return begin, min((rule.until_step or NEVER for rule in rules), default=NEVER)


def _shared(
    keys: Sequence[str], outer: Floats, inner: Floats, shares: dict[str, float | None], what: str, step: int
) -> Floats:
    """Return the probabilities of items, each of which has a key.

    A key with a share has that share. The other keys divide the remainder in proportion to their sums of `outer`. If
    there are no other keys, shares are relative to each other. Items of one key are in proportion to `inner`.
    what: words for the keys in an error.
    """
    fixed = {key: share for key in dict.fromkeys(keys) if (share := shares.get(key)) is not None}
    total, open_mass = sum(fixed.values()), sum(mass for key, mass in zip(keys, outer, strict=True) if key not in fixed)
    if total > 2 - FULL or (total >= FULL and open_mass > 0):
        effect = " and leave nothing for the others" if total <= 2 - FULL else ""
        listing = ", ".join(f"{key} {share}" for key, share in fixed.items())
        raise ValueError(
            f"batch.mixture: shares of {what} sum to {total:g}{effect} at step {step} ({listing}); lower them below 1"
        )
    probabilities = np.zeros(len(keys))
    for key in dict.fromkeys(keys):
        has_key = np.array([item == key for item in keys])
        open_share = (1 - total) * outer[has_key].sum() / open_mass if key not in fixed else 0.0
        mass = fixed.get(key, open_share) / (1.0 if open_mass > 0 else total)
        probabilities[has_key] = mass * inner[has_key] / inner[has_key].sum()
    return probabilities


def _bounded(probabilities: Floats, rows: Floats, max_repeats: float) -> Floats:
    """Bound probabilities by max_repeats times the share of rows. The excess goes to the other units, in proportion."""
    if not max_repeats:
        return probabilities
    limits = max_repeats * rows / rows.sum()
    result, at_limit = probabilities.copy(), np.zeros(len(rows), dtype=bool)
    while (over := ~at_limit & (result > limits * (1 + 1e-12))).any():
        at_limit |= over
        result[at_limit] = limits[at_limit]
        if free_mass := result[~at_limit].sum():
            result[~at_limit] *= (1 - limits[at_limit].sum()) / free_mass
    bounded: Floats = result / result.sum()
    return bounded


def _check_patterns(path: str, patterns: Sequence[str], names: Sequence[str], what: str) -> None:
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ValueError(f"{path}: {pattern!r} matches none of the {what}{suggestion(pattern, names)}")


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
