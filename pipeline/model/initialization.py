"""Initial weights, each parameter (and each expert of a stack) from its own named generator.

So they do not depend on the order of construction, on the number of processes, or on how experts are cut.
"""

import torch
from torch import Tensor, nn

from pipeline.model.noise import generator

ROUTER_SCALE = 0.1  # small router logits at first: near-uniform gates


@torch.no_grad()
def initialize(model: nn.Module, seed: int) -> None:
    """Glorot-uniform projections, embeddings with standard deviation M^-0.5, norms at 1 and 0, biases none; zero for
    what a module lists as `zero_initialized`."""
    for name, parameter in model.named_parameters():
        prefix, _, leaf = name.rpartition(".")
        if leaf in getattr(model.get_submodule(prefix), "zero_initialized", ()):
            nn.init.zeros_(parameter)
        elif leaf == "threshold_E":
            nn.init.constant_(parameter, 1.0 / len(parameter))
        elif leaf in ("weight", "bias"):  # LayerNorm
            nn.init.constant_(parameter, 1.0 if leaf == "weight" else 0.0)
        elif leaf.endswith("_VM"):
            parameter.normal_(0.0, parameter.shape[1] ** -0.5, generator=generator(seed, name))
        elif leaf == "wg_EM":
            parameter.normal_(0.0, ROUTER_SCALE * parameter.shape[1] ** -0.5, generator=generator(seed, name))
        elif leaf in ("wi_EMH", "wo_EHM"):
            for expert, weight in enumerate(parameter):
                _glorot(weight, weight.shape[0], weight.shape[1], generator(seed, name, expert))
        else:
            fan_in, fan_out = _fans(leaf, parameter)
            _glorot(parameter, fan_in, fan_out, generator(seed, name))


def _fans(leaf: str, parameter: Tensor) -> tuple[int, int]:
    if leaf in ("wq_MND", "wk_MND", "wv_MND"):
        return parameter.shape[0], parameter[0].numel()
    if leaf == "wo_NDM":
        return parameter[..., 0].numel(), parameter.shape[-1]
    if leaf in ("wi_MH", "wo_HM"):
        return parameter.shape[0], parameter.shape[1]
    raise AssertionError(f"no initial values are defined for parameters named {leaf}")


def _glorot(weight: Tensor, fan_in: int, fan_out: int, source: torch.Generator) -> None:
    bound = (6.0 / (fan_in + fan_out)) ** 0.5
    weight.uniform_(-bound, bound, generator=source)
