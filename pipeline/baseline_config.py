"""Configuration of the bilingual baselines: tiers of models by the size of the data, and a search that varies them."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

from pipeline.batch.config import BatchConfig
from pipeline.interpolation import interpolate, log_share
from pipeline.model.config import ModelConfig
from pipeline.schema import build
from pipeline.spelling import suggestion
from pipeline.train.config import TrainConfig
from pipeline.vocab.config import VocabConfig

PARTS = ("vocab", "batch", "model", "train")
SAME_FOR_ALL = ("vocab", "batch")  # a candidate with another vocabulary or batch would have another scale of losses


@dataclass(frozen=True, kw_only=True)
class BaselineTier:
    """The bilingual model of pairs of one size.

    up_to: most training rows of such a pair, 0 for any number. With `baselines.interpolate`, the training rows of a
        pair that has exactly these settings.
    """

    up_to: int
    vocab: VocabConfig
    batch: BatchConfig
    model: ModelConfig
    train: TrainConfig


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """Settings that the search tries in place of those of a tier.

    name: the candidate's name in search.csv and in the report.
    model, train: the keys of these groups that differ from the tier.
    """

    name: str
    model: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)

    def applied_to(self, tier: BaselineTier) -> BaselineTier:
        """Return the tier with this candidate's settings."""
        where = f"baselines.search.candidates: {self.name}"
        return replace(
            tier,
            model=build(ModelConfig, merge(asdict(tier.model), self.model), f"{where}.model"),
            train=build(TrainConfig, merge(asdict(tier.train), self.train), f"{where}.train"),
        )


@dataclass(frozen=True, kw_only=True)
class BaselineSearch:
    """A search that trains every candidate on some pairs, which span the resources.

    The lowest validation loss wins a pair. Every other pair takes the winner of the searched pair nearest in resource.
    pairs: number of pairs that are searched.
    candidates: the settings that are compared.
    """

    pairs: int
    candidates: list[Candidate]

    def __post_init__(self) -> None:
        if self.pairs < 2:
            raise ValueError(
                f"baselines.search.pairs={self.pairs} must be at least 2, the richest and the poorest pair; or set "
                "baselines.search=null"
            )
        names = [candidate.name for candidate in self.candidates]
        if not names or not all(names):
            raise ValueError(
                f"baselines.search.candidates: {names} must name at least one; or set baselines.search=null"
            )
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"baselines.search.candidates: {', '.join(twice)} is named twice; give each its own name")

    def candidate(self, name: str) -> Candidate:
        """Return the candidate of this name."""
        return next(candidate for candidate in self.candidates if candidate.name == name)


@dataclass(frozen=True, kw_only=True)
class BaselinesConfig:
    """The bilingual models of a run.

    tiers: the models by training rows, the fewest first; empty for a run without bilingual models.
    interpolate: between two tiers, numbers change linearly with the logarithm of the rows. Without it, a pair takes the
        first tier that allows its rows.
    search: None takes the tiers as they are.
    """

    tiers: list[BaselineTier]
    interpolate: bool = False
    search: BaselineSearch | None = None

    def __post_init__(self) -> None:
        rows = [tier.up_to for tier in self.tiers]
        if self.interpolate:
            if len(rows) > 1 and (rows[0] < 1 or any(low >= high for low, high in pairwise(rows))):
                raise ValueError(
                    f"baselines.tiers: up_to is {rows}; between tiers that are interpolated it must rise from 1 or "
                    "more, since it names the rows at which each of them holds; or set baselines.interpolate=false"
                )
            for low, high in pairwise(rows):
                self.tier(round(math.sqrt(low * high)))  # raises where there is nothing between
        elif rows and rows[-1] != 0:
            raise ValueError("baselines: the last tier must have up_to: 0, so that every pair has a baseline")
        elif 0 in rows[:-1]:
            raise ValueError("baselines: only the last tier may have up_to: 0")
        self.variants()  # raises where a candidate has a wrong setting

    def tier(self, train_rows: int) -> BaselineTier:
        """Return the tier for a pair with this number of training rows."""
        if not self.interpolate:
            return next(tier for tier in self.tiers if tier.up_to == 0 or train_rows <= tier.up_to)
        if train_rows <= self.tiers[0].up_to:
            return self.tiers[0]
        for index, (low, high) in enumerate(pairwise(self.tiers)):
            if train_rows < high.up_to:
                share = log_share(train_rows, low.up_to, high.up_to)
                place = f"baselines.tiers[{index}..{index + 1}]"
                tier = build(BaselineTier, interpolate(asdict(low), asdict(high), share, place), place)
                return replace(tier, up_to=train_rows)
        return self.tiers[-1]

    def variants(self) -> list[BaselineTier]:
        """Return every tier as it is, and with the settings of every candidate."""
        candidates = self.search.candidates if self.search else []
        return [*self.tiers, *(candidate.applied_to(tier) for tier in self.tiers for candidate in candidates)]


def complete(tree: dict[str, Any]) -> dict[str, Any]:
    """Return the section `baselines` of a composed configuration with complete tiers.

    Each tier gets the settings that it lacks from the run's own sections, without experts. Without tiers there is no
    search.
    """
    section = tree["baselines"]
    tiers = [
        _complete_tier(tree, tier, f"baselines.tiers[{index}]") for index, tier in enumerate(section.get("tiers") or [])
    ]
    search = section.get("search") if tiers else None
    between_tiers = section.get("interpolate", False) if tiers else False
    if isinstance(search, dict):
        _check_parts(search.get("candidates") or [])
    return {**section, "tiers": tiers, "interpolate": between_tiers, "search": search}


def _complete_tier(tree: dict[str, Any], tier: dict[str, Any], place: str) -> dict[str, Any]:
    for key in tier:
        if key not in ("up_to", *PARTS):
            raise ValueError(f"{place}.{key} does not exist{suggestion(key, ('up_to', *PARTS))}")
    merged = {part: merge(tree[part], tier.get(part, {})) for part in PARTS}
    merged["model"]["moe"] = {"num_experts": 0}
    # These are settings of the main model alone.
    merged["train"]["initialize_from"] = tier.get("train", {}).get("initialize_from", "")
    merged["batch"]["mixture"] = tier.get("batch", {}).get("mixture", {})
    sizes = [size for key, size in tier.get("vocab", {}).items() if key.endswith("_size")]
    if merged["vocab"].get("shared") and len(sizes) == 1:  # a shared vocabulary has one size, whichever side names it
        merged["vocab"].update(source_size=sizes[0], target_size=sizes[0])
    return {"up_to": tier.get("up_to", 0), **merged}


def _check_parts(candidates: Sequence[Any]) -> None:
    for index, candidate in enumerate(candidates):
        for part in SAME_FOR_ALL:
            if isinstance(candidate, dict) and part in candidate:
                raise ValueError(
                    f"baselines.search.candidates[{index}].{part}: validation losses compare only with the same "
                    f"vocabulary and batch; move it to baselines.tiers"
                )


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return `base` with the values of `over`; nested mappings are merged, other values are replaced."""
    merged = dict(base)
    for key, value in over.items():
        nested = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = merge(merged[key], value) if nested else value
    return merged
