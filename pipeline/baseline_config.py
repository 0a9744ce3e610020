"""Configuration of the bilingual baselines: tiers of models by the size of the data, and a search that varies them."""

import math
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

from pipeline.batch.config import BatchConfig
from pipeline.interpolation import interpolate, log_share
from pipeline.model.components import ALL
from pipeline.model.config import ModelConfig
from pipeline.schema import build
from pipeline.spelling import suggestion
from pipeline.train.config import TrainConfig
from pipeline.vocab.config import OF_A_RUN, VocabConfig

PARTS = ("vocab", "batch", "model", "train")
ALONE: dict[str, Any] = {
    "initialize_from": "",
    "trainable": ALL,
    "learning_rate_factors": {},
    "lora": None,
}  # keys of train that a bilingual model does not take over
BUDGETS = {"max_tokens": "target tokens", "max_steps": "steps"}  # keys of train, and their units


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
    vocab, batch, model, train: the keys of these groups that differ from the tier.
    """

    name: str
    vocab: dict[str, Any] = field(default_factory=dict)
    batch: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)

    def applied_to(self, tier: BaselineTier) -> BaselineTier:
        """Return the tier with this candidate's settings."""
        where = f"baselines.search.candidates: {self.name}"
        return replace(
            tier,
            vocab=build(VocabConfig, merge(asdict(tier.vocab), self.vocab), f"{where}.vocab"),
            batch=build(BatchConfig, merge(asdict(tier.batch), self.batch), f"{where}.batch"),
            model=build(ModelConfig, merge(asdict(tier.model), self.model), f"{where}.model"),
            train=build(TrainConfig, merge(asdict(tier.train), self.train), f"{where}.train"),
        )


@dataclass(frozen=True, kw_only=True)
class BaselineSearch:
    """A search that trains every candidate on some pairs, which span the resources.

    The lowest validation loss wins a pair; it is in nats per character, so that vocabularies compare. If all candidates
    are validated by one other metric (`train.validate_metric`), the highest score wins. Every other pair takes the
    winner of the searched pair nearest in resource.

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

    def boundaries(self) -> list[int]:
        """Return the training rows up to which a pair has other settings than above; none where these are smooth."""
        return [] if self.interpolate else [tier.up_to for tier in self.tiers[:-1]]

    def variants(self) -> list[BaselineTier]:
        """Return every tier as it is, and with the settings of every candidate."""
        candidates = self.search.candidates if self.search else []
        return [*self.tiers, *(candidate.applied_to(tier) for tier in self.tiers for candidate in candidates)]


def complete(tree: dict[str, Any]) -> Any:
    """Return the section `baselines` of a composed configuration with complete tiers.

    Each tier gets the settings that it lacks from the run's own sections, without experts. Without tiers there is no
    search. A section that is no mapping is left as it is; the schema refuses it.
    """
    section = tree.get("baselines")
    if not isinstance(section, dict) or not all(isinstance(tree.get(part), dict) for part in PARTS):
        return {"tiers": []} if isinstance(section, dict) else section
    tiers = section.get("tiers") or []
    if isinstance(tiers, list):
        tiers = [_complete_tier(tree, tier, f"baselines.tiers[{index}]") for index, tier in enumerate(tiers)]
    search = section.get("search") if tiers else None
    between_tiers = section.get("interpolate", False) if tiers else False
    return {**section, "tiers": tiers, "interpolate": between_tiers, "search": search}


def budget_cautions(tree: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """Return warnings about a budget of the run that differs from before, while the tiers get another share of it.

    A tier has another share if it keeps its old budget, or if it takes over the run's steps with a smaller batch.

    tree, before: composed configurations, with and without the overrides that may change the budget.
    """
    changed = [name for name in BUDGETS if tree["train"][name] != before["train"][name]]
    cautions = [_kept_budget_caution(tree, before, name) for name in changed]
    if "max_steps" in changed:
        cautions.append(_smaller_steps_caution(tree))
    return [caution for caution in cautions if caution]


def _kept_budget_caution(tree: dict[str, Any], before: dict[str, Any], name: str) -> str:
    """Return the warning about tiers that all keep their old budget; empty without it. name: a key of BUDGETS."""
    tiers, tiers_before = (complete(composed)["tiers"] for composed in (tree, before))
    run, run_before = tree["train"][name], before["train"][name]
    caps = [tier["train"][name] for tier in tiers]
    if caps != [tier["train"][name] for tier in tiers_before] or 0 in (run, run_before, *caps):
        return ""
    if not caps or not all(isinstance(budget, int) for budget in (run, run_before, *caps)):
        return ""  # a wrong type is an error elsewhere
    low, high = min(caps), max(caps)
    least = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    share, share_before = (_range(low / whole, high / whole) for whole in (run, run_before))
    return (
        f"train.{name}={run} changes the budget of the run, but its bilingual models still end at {least} "
        f"{BUDGETS[name]}, {share} times the run's budget ({share_before} times before); so that they follow, give "
        f"each of baselines.tiers a share: {name}: ${{share:{high / run_before:.2g},${{train.{name}}}}}"
    )


def _smaller_steps_caution(tree: dict[str, Any]) -> str:
    """Return the warning about tiers that take over the run's steps, but hold fewer tokens in one; empty without it.

    A tier that names its own max_steps is left out. So is a tier whose max_tokens come first even if its rows are only
    half full.
    """
    max_steps, run_tokens = tree["train"]["max_steps"], _tokens_of_step(tree["batch"])
    shares = []
    for own, tier in zip(tree["baselines"]["tiers"] or [], complete(tree)["tiers"], strict=True):
        tokens, max_tokens = _tokens_of_step(tier["batch"]), tier["train"]["max_tokens"]
        ends_by_tokens = 0 < max_tokens <= max_steps * tokens / 2
        if "max_steps" not in own.get("train", {}) and tokens < run_tokens and not ends_by_tokens:
            shares.append(tokens / run_tokens)
    if not max_steps or not shares:
        return ""
    return (
        f"train.max_steps={max_steps} ends the bilingual models at {max_steps:,} steps too, but their steps hold "
        f"{_range(min(shares), max(shares))} times the target tokens of the run's steps; set train.max_tokens instead, "
        f"or give each of baselines.tiers a share: max_steps: ${{share:{1 / min(shares):.2g},${{train.max_steps}}}}"
    )


def _tokens_of_step(batch: dict[str, Any]) -> int:
    """Return the most target tokens of a step. A fitted target side counts as long as the source side."""
    return int(batch["groups_per_step"]) * max(
        int(shape["rows"]) * int(shape["target"] or shape["source"]) for shape in batch["shapes"]
    )


def _range(low: float, high: float) -> str:
    texts = dict.fromkeys(f"{value:.2g}" for value in (low, high))
    return " to ".join(texts)


def _complete_tier(tree: dict[str, Any], tier: Any, place: str) -> dict[str, Any]:
    if not isinstance(tier, dict):
        raise ValueError(f"{place}={tier!r} must be a mapping, as {{up_to: 0, model: {{dim: 64}}}}")
    for key, value in tier.items():
        if key not in ("up_to", *PARTS):
            raise ValueError(f"{place}.{key} does not exist{suggestion(str(key), ('up_to', *PARTS))}")
        if key in PARTS and not isinstance(value, dict):
            raise ValueError(f"{place}.{key}={value!r} must be a mapping of the keys of {key} that differ")
    merged = {part: merge(tree[part], tier.get(part, {})) for part in PARTS}
    merged["model"]["moe"] = {"num_experts": 0}
    # These are settings of the main model alone.
    for key, value in ALONE.items():
        merged["train"][key] = tier.get("train", {}).get(key, value)
    for key in ("mixture", "augment"):
        merged["batch"][key] = tier.get("batch", {}).get(key, {})
    for key in OF_A_RUN:
        if tier.get("vocab", {}).get(key):
            raise ValueError(f"{place}.vocab.{key}: a bilingual model has a vocabulary of its own; leave it out")
        merged["vocab"].pop(key, None)
    sizes = [size for key, size in tier.get("vocab", {}).items() if key.endswith("_size")]
    if merged["vocab"].get("shared") and len(sizes) == 1:  # a shared vocabulary has one size, whichever side names it
        merged["vocab"].update(source_size=sizes[0], target_size=sizes[0])
    return {"up_to": tier.get("up_to", 0), **merged}


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return `base` with the values of `over`; nested mappings are merged, other values are replaced."""
    merged = dict(base)
    for key, value in over.items():
        nested = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = merge(merged[key], value) if nested else value
    return merged
