"""The points of a sweep: products of overrides, composed, measured and named."""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pipeline.config import PLACE, RunConfig, load_config
from pipeline.model.config import MoEConfig
from pipeline.model.flops import TRAINING_FACTOR, count_parameters, forward_flops
from pipeline.sweep.config import SweepConfig

Role = Literal["point", "active", "parameters"]
Axes = Mapping[str, str]  # override by key

LAYERS = "layers"  # number of layers of encoder and decoder together, as GShard counts
SEED, GATE, RECIPE = "train.seed", "gate", "recipes"
_IN_SIZE = ("model.moe.num_experts", LAYERS, "model.encoder_layers", "model.decoder_layers")
SHARED = ("data", "baselines")  # jobs that come before the points


@dataclass(frozen=True, kw_only=True)
class Point:
    """One run of a sweep.

    role: a point that the user wants, or the dense model of equal active FLOPs or parameters.
    overrides: command line of `train`.
    compared: names of the dense models to compare it with, by their role.
    """

    id: str
    role: Role
    overrides: tuple[str, ...]
    config: RunConfig
    compared: Mapping[Role, str] = field(default_factory=dict)

    @property
    def token_flops(self) -> float:
        """Forward FLOPs of a source and a target token, at the configured sizes of the vocabularies.

        The router is counted, and attention between tokens is not.
        """
        forward = forward_flops(self.config.model, self.config.vocab.target_size)
        return forward.source_token + forward.target_token

    @property
    def training_flops(self) -> float:
        """Training FLOPs of the whole budget, with as many source as target tokens; 0 where the budget is in steps."""
        return TRAINING_FACTOR * self.token_flops * self.config.train.max_tokens

    @property
    def parameters(self) -> int:
        """Number of parameters at the configured sizes of the vocabularies."""
        vocab = self.config.vocab
        count = count_parameters(
            self.config.model,
            source_vocabulary=vocab.source_size,
            target_vocabulary=vocab.target_size,
            shared=vocab.shared,
        )
        return count.total


def expand(config: SweepConfig) -> list[Point]:
    """Return the points of the grids in their order, equal ones once. Raises ValueError with what to change."""
    composed: list[tuple[Axes, tuple[str, ...], RunConfig]] = []
    distinct = []
    for grid in config.grids:
        for axes in _product([*config.common, *grid, *config.overrides]):
            overrides = tuple(_train_overrides(axes))
            run = load_config(overrides)
            settings = comparable(run)
            if settings not in distinct:
                distinct.append(settings)
                composed.append((axes, overrides, run))
    swept = _swept([axes for axes, _, _ in composed])
    points: list[Point] = []
    for axes, overrides, run in composed:
        name = name_of({key: axes[key] for key in swept if key in axes}, run)
        namesake = next((point for point in points if point.id == name), None)
        if namesake is not None:
            raise ValueError(
                f"two points would be called {name}: {' '.join(namesake.overrides)} and {' '.join(overrides)}; "
                "sweep them under different names"
            )
        points.append(Point(id=name, role="point", overrides=overrides, config=run))
    return points


def named(point: Point, runs: str) -> Point:
    """Return the point with the configuration that its run has. runs: the sweep's directory."""
    config = replace(point.config, name=point.id, runtime=replace(point.config.runtime, runs=runs))
    return replace(point, config=config)


def comparable(config: RunConfig) -> dict[str, Any]:
    """Return the settings that decide the results of a run's main model; a dense model ignores those of experts."""
    if not config.model.moe.num_experts:
        config = replace(config, model=replace(config.model, moe=MoEConfig()))
    tree = config.to_json()
    return {key: value for key, value in tree.items() if key not in ("name", "recipe", "baselines", *PLACE)}


def name_of(swept: Axes, config: RunConfig) -> str:
    """Name a point, as 8e_6l, dense_6l_s2 or 8e_6l_top1; by its recipe where recipes are swept."""
    recipe = swept.get(RECIPE, "").partition("=")[2]
    sizes = [_experts(config), _depth(config)]
    if recipe:
        sizes = [
            *([sizes[0]] if _IN_SIZE[0] in swept else []),
            *([sizes[1]] if any(key in swept for key in _IN_SIZE[1:]) else []),
        ]
    parts = [recipe.split("/")[-1], *sizes] if recipe else sizes
    for key, override in swept.items():
        value = _plain(override.partition("=")[2])
        if key == GATE:
            parts += [value] if config.model.moe.num_experts else []
        elif key not in (*_IN_SIZE, RECIPE, SEED):
            parts.append(f"{_plain(key.split('.')[-1])}-{value}")
    if SEED in swept:
        parts.append(f"s{config.train.seed}")
    name = "_".join(parts)
    return f"{name}_run" if name in SHARED else name


def _experts(config: RunConfig) -> str:
    return f"{config.model.moe.num_experts}e" if config.model.moe.num_experts else "dense"


def _depth(config: RunConfig) -> str:
    encoder, decoder = config.model.encoder_layers, config.model.decoder_layers
    return f"{encoder + decoder}l" if encoder == decoder else f"{encoder}-{decoder}l"


def _plain(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", text).strip("-")


def _swept(points: Sequence[Axes]) -> list[str]:
    """Return the keys that differ between points, in the order of their first appearance."""
    keys = dict.fromkeys(key for axes in points for key in axes)
    return [key for key in keys if len({axes.get(key) for axes in points}) > 1]


def _product(overrides: Iterable[str]) -> list[Axes]:
    """Return all combinations, as Hydra's sweeper makes them; of several overrides of one key the last counts."""
    axes: dict[str, list[str]] = {}
    for text in overrides:
        key, values = _values(text)
        axes[key] = values
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def _values(text: str) -> tuple[str, list[str]]:
    """Return the key, and an override for each value that the text stands for.

    Text that Hydra cannot read stays as it is, and `load_config` gives the error.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    key, _, value = text.partition("=")
    if key == "corpus" and Path(value).expanduser().is_dir():
        return key, [text]
    try:
        override = OverridesParser.create().parse_override(text)
    except HydraException:
        return key, [text]
    if not override.is_sweep_override():
        return override.get_key_element(), [text]
    if not override.is_discrete_sweep():
        raise ValueError(f"{text}: an interval has no end of points; write them out, as {key}=1,2,3")
    return override.get_key_element(), [f"{override.get_key_element()}={v}" for v in override.sweep_string_iterator()]


def _train_overrides(axes: Axes) -> Iterable[str]:
    for key, override in axes.items():
        if key != LAYERS:
            yield override
            continue
        value = override.partition("=")[2]
        if not value.isdecimal() or int(value) % 2 or int(value) == 0:
            raise ValueError(
                f"layers={value}: these are the layers of encoder and decoder together, half of them each; choose an "
                "even number"
            )
        yield f"model.encoder_layers={int(value) // 2}"
        yield f"model.decoder_layers={int(value) // 2}"
