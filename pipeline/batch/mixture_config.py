"""Configuration of the mixture of pairs and sources. Free of numpy and torch, so that it loads fast."""

import math
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class PairGroup:
    """Language pairs with a rule of their own. A pair belongs to the first group that names it.

    pairs: names of pairs, or patterns (`de-fr`, `*-en`, `en-*`, `*`).
    temperature: temperature between the pairs of the group; null is the mixture's.
    share: fixed share of all sentences; null is the share that its pairs have at the mixture's temperature.
    cap: most rows that count for a pair; 0 is the mixture's.
    from_step: first step that draws from the group.
    until_step: first later step that does not draw from it; 0 is never.
    """

    pairs: list[str]
    temperature: float | None = None
    share: float | None = None
    cap: int = 0
    from_step: int = 1
    until_step: int = 0


@dataclass(frozen=True, kw_only=True)
class SourceRule:
    """Sources with a rule of their own. Rows of a pair belong to the first rule that names their source.

    sources: names of sources, or patterns.
    pairs: pairs to which the rule applies, names or patterns.
    share: fixed share of the sentences of each pair; null is by rows.
    weight: number of rows for which a row counts, in its pair and in the size of its pair.
    from_step: first step that draws from these sources.
    until_step: first later step that does not draw from them; 0 is never.
    """

    sources: list[str]
    pairs: list[str] = field(default_factory=lambda: ["*"])
    share: float | None = None
    weight: float = 1.0
    from_step: int = 1
    until_step: int = 0


@dataclass(frozen=True, kw_only=True)
class MixtureConfig:
    """The shares of sources and language pairs in training (docs/mixing.md).

    temperature: T of p ∝ n^(1/T) over pairs with n rows; 1 is proportional.
    cap: most rows that count for a pair; 0 is no cap.
    max_repeats: most times that any row is drawn while as many sentences are drawn as the mixture has rows. The excess
        goes to other rows. 0 is no bound.
    groups: rules for groups of pairs, by a name that the user chooses.
    sources: rules for sources, by a name that the user chooses.
    """

    temperature: float = 1.0
    cap: int = 0
    max_repeats: float = 0.0
    groups: dict[str, PairGroup] = field(default_factory=dict)
    sources: dict[str, SourceRule] = field(default_factory=dict)

    @property
    def has_rules(self) -> bool:
        """True if rules name pairs or sources, so that they must be checked against the corpus."""
        return bool(self.groups or self.sources)

    def __post_init__(self) -> None:
        _check_temperature("batch.mixture.temperature", self.temperature)
        if self.max_repeats and not self.max_repeats >= 1:
            raise ValueError(
                f"batch.mixture.max_repeats={self.max_repeats} is below 1, which rows are drawn on average; "
                "choose 1 (proportional) or more, or 0 for no bound"
            )
        _check_cap("batch.mixture.cap", self.cap)
        for name, group in self.groups.items():
            path = f"batch.mixture.groups.{name}"
            _check_common(path, group)
            _check_cap(f"{path}.cap", group.cap)
            if group.temperature is not None:
                _check_temperature(f"{path}.temperature", group.temperature)
            if not group.pairs:
                raise ValueError(f"{path}.pairs is empty; give names or patterns such as '*-en'")
        for name, rule in self.sources.items():
            path = f"batch.mixture.sources.{name}"
            _check_common(path, rule)
            if not 0 < rule.weight < math.inf:
                raise ValueError(
                    f"{path}.weight={rule.weight} must be positive; leave a source out by its pairs' files"
                )
            for key, patterns in (("sources", rule.sources), ("pairs", rule.pairs)):
                if not patterns:
                    raise ValueError(f"{path}.{key} is empty; give names or patterns such as '*'")


def _check_temperature(path: str, value: float) -> None:
    if not 1 <= value < math.inf:
        raise ValueError(f"{path}={value} must be at least 1 (proportional); 1000 is as good as uniform")


def _check_cap(path: str, value: int) -> None:
    if value < 0:
        raise ValueError(f"{path}={value} must be a number of rows, or 0")


def _check_common(path: str, rule: PairGroup | SourceRule) -> None:
    if rule.share is not None and not 0 < rule.share <= 1:
        raise ValueError(f"{path}.share={rule.share} must lie in (0, 1]; null leaves it open")
    if rule.from_step < 1:
        raise ValueError(f"{path}.from_step={rule.from_step} must be at least 1, the first step")
    if rule.until_step and rule.until_step <= rule.from_step:
        raise ValueError(f"{path}.until_step={rule.until_step} must come after from_step={rule.from_step}; 0 is never")
