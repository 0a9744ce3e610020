"""Dense models of equal active FLOPs a token, or of equal parameters, to compare mixtures of experts with.

k experts of hidden size H cost as much as k feed-forward layers of that size, and the router costs more on top. So the
ffn_dim of a dense model of equal FLOPs is solved for.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from pipeline.config import RunConfig
from pipeline.model.config import MoEConfig
from pipeline.sweep.config import Comparison
from pipeline.sweep.points import Point, Role, comparable

logger = logging.getLogger(__name__)

TOLERANCE = 0.01  # a dense model within this share of the size is taken
EVEN = 8  # ffn_dim is a multiple of this where the tolerance allows it, because other shapes are slow on a GPU
ORDER: tuple[Role, ...] = ("point", "active", "parameters")
MOST_FLOPS = 3.0  # largest FLOPs of a dense model of equal parameters, as a multiple of its mixture of experts


def with_counterparts(points: Sequence[Point], compare: Sequence[Comparison]) -> tuple[list[Point], list[str]]:
    """Compare each point with experts with a dense model of each kind, and add the dense models that are missing.

    Returns all points, and a line with the reason for each dense model that was left out.
    """
    all_points, left_out = list(points), list[str]()
    for place, point in enumerate(points):
        if not point.config.model.moe.num_experts:
            continue
        compared: dict[Role, str] = {}
        for role in compare:
            dense = _counterpart(point, role, all_points)
            ratio = dense.token_flops / point.token_flops
            if role == "parameters" and ratio > MOST_FLOPS:
                left_out.append(
                    f"{dense.id} (dense, ffn_dim={dense.config.model.ffn_dim}) would have the parameters of {point.id} "
                    f"at {ratio:.1f} times its FLOPs; the most is {MOST_FLOPS:g}"
                )
                continue
            if dense not in all_points:
                all_points.append(dense)
            compared[role] = dense.id
        all_points[place] = replace(point, compared=compared)
    return sorted(all_points, key=lambda point: ORDER.index(point.role)), left_out


def warn_of_unequal(points: Sequence[Point]) -> None:
    """Warn where a dense point of the user has other FLOPs than the points with experts and as many layers."""
    dense = [point for point in points if not point.config.model.moe.num_experts]
    for point in points:
        moe = point.config.model.moe
        candidates = [model for model in dense if _layers(model) == _layers(point)]
        if not moe.num_experts or not candidates or "active" in point.compared:
            continue
        nearest = min(candidates, key=lambda model: abs(model.token_flops - point.token_flops))
        ratio = nearest.token_flops / point.token_flops
        if abs(ratio - 1) > TOLERANCE:
            k = moe.gate.experts_per_token + moe.shared_experts
            logger.warning(
                "warning: %s is not of equal FLOPs: %g experts of expert_dim=%d cost a token what a dense layer of %g "
                "costs, and %s, with ffn_dim=%d, has %.2f times its FLOPs; set model.moe.expert_dim=%d, or "
                "compare=[active]",
                *(point.id, k, moe.expert_dim, k * moe.expert_dim, nearest.id, nearest.config.model.ffn_dim, ratio),
                round(nearest.config.model.ffn_dim / k),
            )


def _counterpart(point: Point, role: Comparison, points: Sequence[Point]) -> Point:
    """Return the dense model of equal FLOPs or parameters: a point within the tolerance, or a new one."""

    def size(model: Point) -> float:
        return model.token_flops if role == "active" else model.parameters

    ffn_dim = _solve(point, size)
    overrides = (*point.overrides, "model.moe.num_experts=0", f"model.ffn_dim={ffn_dim}")
    model = replace(point.config.model, ffn_dim=ffn_dim, moe=replace(point.config.model.moe, num_experts=0))
    dense = Point(id="", role=role, overrides=overrides, config=replace(point.config, model=model))
    alike = [model for model in points if _but_ffn(model.config) == _but_ffn(dense.config)]
    nearest = min(alike, key=lambda model: abs(size(model) - size(point)), default=None)
    if nearest is not None and abs(size(nearest) / size(point) - 1) <= TOLERANCE:
        return nearest
    return replace(dense, id=_name(point, role, ffn_dim, [model.id for model in points]))


def _solve(point: Point, size: Callable[[Point], float]) -> int:
    """Return the ffn_dim at which a dense model has the size of the point; sizes grow linearly with ffn_dim."""

    def dense(ffn_dim: int) -> float:
        model = replace(point.config.model, ffn_dim=ffn_dim, moe=MoEConfig())
        return size(replace(point, config=replace(point.config, model=model)))

    smallest = dense(1)
    exact = 1 + (size(point) - smallest) / (dense(2) - smallest)
    even = EVEN * round(exact / EVEN)
    return even if even and abs(dense(even) / size(point) - 1) <= TOLERANCE else max(1, round(exact))


def _but_ffn(config: RunConfig) -> dict[str, object]:
    """Return the settings that dense models of another ffn_dim share; a model with experts shares them with none."""
    tree = comparable(config)
    if config.model.moe.num_experts:
        return {**tree, "experts": True}
    return {**tree, "model": {**tree["model"], "ffn_dim": 0}}


def _layers(point: Point) -> tuple[int, int]:
    return point.config.model.encoder_layers, point.config.model.decoder_layers


def _name(point: Point, role: Comparison, ffn_dim: int, names: Sequence[str]) -> str:
    if role == "parameters":
        return f"dense_params_{point.id}"
    experts = f"{point.config.model.moe.num_experts}e_"
    name = "dense_" + (point.id.removeprefix(experts) if point.id.startswith(experts) else f"active_{point.id}")
    return f"{name}_ffn{ffn_dim}" if name in names else name
