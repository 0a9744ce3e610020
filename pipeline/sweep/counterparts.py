"""Dense models to compare mixtures of experts with: of equal active FLOPs a token, of equal parameters.

k experts of hidden size H cost k feed-forward layers of that size, and the router costs on top: so a dense model of
equal FLOPs has a ffn_dim that is solved for, not guessed.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from pipeline.config import RunConfig
from pipeline.model.config import MoEConfig
from pipeline.sweep.config import Comparison
from pipeline.sweep.points import Point, Role, comparable

logger = logging.getLogger(__name__)

TOLERANCE = 0.01  # a dense model within it is not made again
EVEN = 8  # ffn_dim is a multiple of it where the tolerance lets it: other shapes are slow on a GPU
ORDER: tuple[Role, ...] = ("point", "active", "parameters")
MOST_FLOPS = 3.0  # of a dense model of equal parameters, in units of those of its mixture of experts


def with_counterparts(points: Sequence[Point], compare: Sequence[Comparison]) -> tuple[list[Point], list[str]]:
    """The points, those with experts compared with a dense model each, which is added where no point is it already;
    and what was left out, with the reason."""
    found, left_out = list(points), list[str]()
    for place, point in enumerate(points):
        if not point.config.model.moe.num_experts:
            continue
        compared: dict[Role, str] = {}
        for role in compare:
            dense = _counterpart(point, role, found)
            ratio = dense.token_flops / point.token_flops
            if role == "parameters" and ratio > MOST_FLOPS:
                left_out.append(
                    f"{dense.id} (dense, ffn_dim={dense.config.model.ffn_dim}) would have the parameters of {point.id} "
                    f"at {ratio:.1f} times its FLOPs; the most is {MOST_FLOPS:g}"
                )
                continue
            if dense not in found:
                found.append(dense)
            compared[role] = dense.id
        found[place] = replace(point, compared=compared)
    return sorted(found, key=lambda point: ORDER.index(point.role)), left_out


def warn_of_unequal(points: Sequence[Point]) -> None:
    """Say where a dense model that was given by hand has not the FLOPs of the experts beside it."""
    dense = [point for point in points if not point.config.model.moe.num_experts]
    for point in points:
        moe = point.config.model.moe
        beside = [each for each in dense if _layers(each) == _layers(point)]
        if not moe.num_experts or not beside or "active" in point.compared:
            continue
        nearest = min(beside, key=lambda each: abs(each.token_flops - point.token_flops))
        ratio = nearest.token_flops / point.token_flops
        if abs(ratio - 1) > TOLERANCE:
            k = moe.gate.experts_per_token
            logger.warning(
                "warning: %s is not of equal FLOPs: %g experts of expert_dim=%d cost a token what a dense layer of %g "
                "costs, and %s, with ffn_dim=%d, has %.2f times its FLOPs; set model.moe.expert_dim=%d, or "
                "compare=[active]",
                *(point.id, k, moe.expert_dim, k * moe.expert_dim, nearest.id, nearest.config.model.ffn_dim, ratio),
                round(nearest.config.model.ffn_dim / k),
            )


def _counterpart(point: Point, role: Comparison, points: Sequence[Point]) -> Point:
    """The dense model of equal FLOPs or parameters: the one that there is, within the tolerance, or a new one."""

    def size(of: Point) -> float:
        return of.token_flops if role == "active" else of.parameters

    ffn_dim = _solve(point, size)
    overrides = (*point.overrides, "model.moe.num_experts=0", f"model.ffn_dim={ffn_dim}")
    model = replace(point.config.model, ffn_dim=ffn_dim, moe=replace(point.config.model.moe, num_experts=0))
    made = Point(id="", role=role, overrides=overrides, config=replace(point.config, model=model))
    alike = [each for each in points if _but_ffn(each.config) == _but_ffn(made.config)]
    nearest = min(alike, key=lambda each: abs(size(each) - size(point)), default=None)
    if nearest is not None and abs(size(nearest) / size(point) - 1) <= TOLERANCE:
        return nearest
    return replace(made, id=_name(point, role, ffn_dim, [each.id for each in points]))


def _solve(point: Point, size: Callable[[Point], float]) -> int:
    """ffn_dim of the dense model of the point's size, which grows linearly with it."""

    def dense(ffn_dim: int) -> float:
        model = replace(point.config.model, ffn_dim=ffn_dim, moe=MoEConfig())
        return size(replace(point, config=replace(point.config, model=model)))

    one, two = dense(1), dense(2)
    exact = 1 + (size(point) - one) / (two - one)
    even = EVEN * round(exact / EVEN)
    return even if even and abs(dense(even) / size(point) - 1) <= TOLERANCE else max(1, round(exact))


def _but_ffn(config: RunConfig) -> dict[str, object]:
    """What a dense model is but for its ffn_dim; a model with experts is never alike."""
    tree = comparable(config)
    if config.model.moe.num_experts:
        return {**tree, "experts": True}
    return {**tree, "model": {**tree["model"], "ffn_dim": 0}}


def _layers(point: Point) -> tuple[int, int]:
    return point.config.model.encoder_layers, point.config.model.decoder_layers


def _name(point: Point, role: Comparison, ffn_dim: int, taken: Sequence[str]) -> str:
    if role == "parameters":
        return f"dense_params_{point.id}"
    experts = f"{point.config.model.moe.num_experts}e_"
    name = "dense_" + (point.id.removeprefix(experts) if point.id.startswith(experts) else f"active_{point.id}")
    return f"{name}_ffn{ffn_dim}" if name in taken else name
