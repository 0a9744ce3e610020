"""Initial weights. Each parameter, and each expert of a stack, is drawn from its own named generator.

Therefore weights do not depend on the order of construction, the number of processes, or the way experts are cut.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.model.noise import generator

ROUTER_SCALE = 0.1  # router logits start small, so that gates start nearly uniform


@dataclass(frozen=True, kw_only=True)
class Part:
    """A process's part of a parameter that is cut.

    shape: shape of the whole parameter.
    starts: index in each dimension at which the part begins.
    """

    shape: tuple[int, ...]
    starts: tuple[int, ...]

    def of_expert(self) -> "Part":
        """Return the part of one expert of a stack."""
        return Part(shape=self.shape[1:], starts=self.starts[1:])


@torch.no_grad()
def initialize(model: nn.Module, seed: int, parts: Mapping[str, Part] | None = None) -> None:
    """Set the initial value of every parameter.

    Projections are Glorot-uniform, embeddings have standard deviation M^-0.5, norms start at 1 and 0. Parameters that a
    module lists as `zero_initialized` start at zero.
    parts: by name, for parameters that are cut. A part gets the values that the whole would have there. Only the
        experts of this process are drawn. Other parameters are drawn whole, one at a time.
    """
    parts = parts or {}
    for name, parameter in model.named_parameters():
        prefix, _, leaf = name.rpartition(".")
        part = parts.get(name, Part(shape=tuple(parameter.shape), starts=(0,) * parameter.dim()))
        if leaf in ("wi_EMH", "wu_EMH", "wo_EHM"):
            for expert, weight in enumerate(parameter, start=part.starts[0]):
                _fill(weight, part.of_expert(), partial(_expert, source=generator(seed, name, expert)))
        else:
            zero = leaf in getattr(model.get_submodule(prefix), "zero_initialized", ())
            _fill(parameter, part, nn.init.zeros_ if zero else partial(_draw, leaf, source=generator(seed, name)))


def _fill(into: Tensor, part: Part, draw: Callable[[Tensor], Any]) -> None:
    whole = into if part.shape == into.shape else into.new_empty(part.shape)
    draw(whole)
    if whole is not into:
        into.copy_(whole[tuple(slice(s, s + n) for s, n in zip(part.starts, into.shape, strict=True))])


def _expert(weight: Tensor, *, source: torch.Generator) -> None:
    _glorot(weight, weight.shape[0], weight.shape[1], source)


def _draw(leaf: str, weight: Tensor, *, source: torch.Generator) -> None:
    if leaf == "threshold_E":
        nn.init.constant_(weight, 1.0 / len(weight))
    elif leaf in ("weight", "bias"):  # of a norm
        nn.init.constant_(weight, 1.0 if leaf == "weight" else 0.0)
    elif leaf.endswith("R"):  # A of an adapter
        bound = weight[..., 0].numel() ** -0.5
        weight.uniform_(-bound, bound, generator=source)
    elif leaf.endswith("_VM"):
        weight.normal_(0.0, weight.shape[1] ** -0.5, generator=source)
    elif leaf == "wt_TE":
        weight.normal_(0.0, ROUTER_SCALE, generator=source)
    elif leaf == "wg_EM":
        weight.normal_(0.0, ROUTER_SCALE * weight.shape[1] ** -0.5, generator=source)
    else:
        fan_in, fan_out = _fans(leaf, weight)
        _glorot(weight, fan_in, fan_out, source)


def _fans(leaf: str, parameter: Tensor) -> tuple[int, int]:
    if leaf in ("wq_MND", "wk_MND", "wv_MND"):
        return parameter.shape[0], parameter[0].numel()
    if leaf == "wo_NDM":
        return parameter[..., 0].numel(), parameter.shape[-1]
    if leaf in ("wi_MH", "wu_MH", "wo_HM"):
        return parameter.shape[0], parameter.shape[1]
    raise AssertionError(f"no initial values are defined for parameters named {leaf}")


def _glorot(weight: Tensor, fan_in: int, fan_out: int, source: torch.Generator) -> None:
    bound = (6.0 / (fan_in + fan_out)) ** 0.5
    weight.uniform_(-bound, bound, generator=source)
