"""The settings that the points of a sweep must have in common, so that their scores compare."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from pipeline.config import RunConfig
from pipeline.sweep.points import Point
from pipeline.vocab.config import OF_A_RUN

EQUAL = ("pairs", "corpus", "vocab", "batch", "decode", "score")
BUDGET = ("max_tokens", "max_steps")
BASELINES = "baselines.tiers"


def check_equal(points: Sequence[Point]) -> None:
    """Raise ValueError with the key and the points where a setting differs that must not."""
    for point in points:
        if point.config.train.patience:
            raise ValueError(
                f"train.patience={point.config.train.patience} of {point.id}: points train on the same tokens, and "
                "only bilingual baselines stop early; set train.patience=0"
            )
    first, *settings = [dict(_flat(_compared(point))) for point in points]
    for point, own in zip(points[1:], settings, strict=True):
        different = [key for key in {**first, **own} if first.get(key) != own.get(key)]
        if different:
            key = different[0]
            raise ValueError(
                f"{key} differs between points: {first.get(key)} in {points[0].id}, {own.get(key)} in {point.id}"
                f"{f' (and {len(different) - 1} more keys)' if different[1:] else ''}; points compare only at the same "
                "data, vocabularies, batches, budget and decoding: give them the same value, or make two sweeps of them"
            )


def with_common_baselines(points: Sequence[Point]) -> list[Point]:
    """Return the points with the bilingual baselines of the first one.

    A tier takes the settings that it lacks from its run, so a deeper model, say, would have other baselines.
    """
    common = points[0].config.baselines
    if all(point.config.baselines == common for point in points):
        return list(points)
    # whole, because a point would fill in its own values; a bilingual model has a vocabulary of its own
    tiers = asdict(points[0].config)["baselines"]["tiers"]
    for tier in tiers:
        tier["vocab"] = {key: value for key, value in tier["vocab"].items() if key not in OF_A_RUN}
    override = f"{BASELINES}={literal(tiers)}"
    return [_with(point, override, replace(point.config, baselines=common)) for point in points]


def literal(value: Any) -> str:
    """Write a value in the grammar of Hydra's overrides."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        escaped = value.replace("\\'", "\\\\'").replace("'", "\\'")
        return f"'{escaped}'"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ",".join(map(literal, value)) + "]"
    return repr(value)


def _with(point: Point, override: str, config: RunConfig) -> Point:
    overrides = (*(text for text in point.overrides if not text.startswith(f"{BASELINES}=")), override)
    return replace(point, overrides=overrides, config=config)


def _compared(point: Point) -> dict[str, Any]:
    tree = point.config.to_json()
    return {**{key: tree[key] for key in EQUAL}, "train": {key: tree["train"][key] for key in BUDGET}}


def _flat(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value
