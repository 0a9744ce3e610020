"""Something to time: where it runs, and one forward and backward of it."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from bench.moe.size import Size


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where and in which precision a layer runs.

    precision: `fp32`; `bf16`, autocast over float32 weights; `bf16-weights`, weights and input in bfloat16 themselves.
    """

    device: str
    precision: str

    @property
    def dtype(self) -> torch.dtype:
        """Of weights and input."""
        return torch.bfloat16 if self.precision == "bf16-weights" else torch.float32

    def uniform(self, *shape: int, fan_in: int = 3, seed: int = 1) -> Tensor:
        """Random numbers with variance 1 / fan_in, the same for every variant; uniform because that is quick."""
        source = torch.Generator(self.device).manual_seed(seed)
        bound = (3 / fan_in) ** 0.5
        return torch.empty(shape, device=self.device, dtype=self.dtype).uniform_(-bound, bound, generator=source)

    def parameter(self, *shape: int, fan_in: int, seed: int) -> nn.Parameter:
        return nn.Parameter(self.uniform(*shape, fan_in=fan_in, seed=seed))

    def tokens(self, size: Size) -> Tensor:
        """The input of every variant, [S, M], a leaf."""
        return self.uniform(size.tokens, size.model).requires_grad_()


@dataclass(kw_only=True)
class Case:
    """Something to time. forward: gives the outputs. weights, inputs: leaves that get gradients. flops: useful ones."""

    forward: Callable[[], tuple[Tensor, ...]]
    weights: list[nn.Parameter]
    inputs: list[Tensor]
    flops: float
    place: Place
    _gradients: list[Tensor] = field(default_factory=list)

    def clear(self) -> None:
        """Drop all gradients."""
        for leaf in (*self.weights, *self.inputs):
            leaf.grad = None

    def run(self) -> None:
        """Forward and, where an output has a gradient, backward with a fixed one (of a scalar, a loss, it is 1)."""
        with torch.autocast(self.place.device, torch.bfloat16, enabled=self.place.precision == "bf16"):
            outputs = self.forward()
        outputs = tuple(output for output in outputs if output.requires_grad)
        if not outputs:
            return
        if not self._gradients:
            for output in outputs:
                full = torch.ones_like(output) if output.dim() == 0 else torch.empty_like(output).uniform_(-1, 1)
                self._gradients.append(full)
        torch.autograd.backward(outputs, self._gradients)
