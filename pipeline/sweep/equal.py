"""Equal means equal: what the points of a sweep must have in common, so that their scores compare."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pipeline.config import RunConfig
from pipeline.sweep.points import Point

EQUAL = ("pairs", "corpus", "vocab", "batch", "decode", "score")
BUDGET = ("max_tokens", "max_steps")
BASELINES = "baselines.tiers"


def check_equal(points: Sequence[Point]) -> None:
    """Raises ValueError that names the key and the points."""
    for point in points:
        if point.config.train.patience:
            raise ValueError(
                f"train.patience={point.config.train.patience} of {point.id}: points train on the same tokens, and "
                "only bilingual baselines stop early; set train.patience=0"
            )
    first, *others = [dict(_flat(_held_equal(point))) for point in points]
    for point, held in zip(points[1:], others, strict=True):
        different = [key for key in {**first, **held} if first.get(key) != held.get(key)]
        if different:
            key = different[0]
            raise ValueError(
                f"{key} differs between points: {first.get(key)} in {points[0].id}, {held.get(key)} in {point.id}"
                f"{f' (and {len(different) - 1} more keys)' if different[1:] else ''}; points compare only at the same "
                "data, vocabularies, batches, budget and decoding: give them the same value, or make two sweeps of them"
            )


def with_common_baselines(points: Sequence[Point]) -> list[Point]:
    """The points with the bilingual baselines of the first: a tier takes what it does not name from its run, so those
    of a deeper model, say, would be others."""
    common = points[0].config.baselines
    if all(point.config.baselines == common for point in points):
        return list(points)
    tiers = points[0].config.to_json()["baselines"]["tiers"]
    override = f"{BASELINES}={literal(tiers)}"
    return [_with(point, override, replace(point.config, baselines=common)) for point in points]


def literal(value: Any) -> str:
    """A value in the grammar of Hydra's overrides."""
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
    overrides = (*(each for each in point.overrides if not each.startswith(f"{BASELINES}=")), override)
    return replace(point, overrides=overrides, config=config)


def _held_equal(point: Point) -> dict[str, Any]:
    tree = point.config.to_json()
    return {**{key: tree[key] for key in EQUAL}, "train": {key: tree["train"][key] for key in BUDGET}}


def _flat(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value
