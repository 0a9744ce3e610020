"""A case to measure: the place where it runs, and its forward and backward."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from bench.moe.size import Size


@dataclass(frozen=True, kw_only=True)
class Place:
    """The device and precision of a layer.

    precision: `fp32`; `bf16`, autocast with float32 weights; `bf16-weights`, weights and input in bfloat16.
    """

    device: str
    precision: str

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of weights and input."""
        return torch.bfloat16 if self.precision == "bf16-weights" else torch.float32

    def uniform(self, *shape: int, fan_in: int = 3, seed: int = 1) -> Tensor:
        """Return random numbers with variance 1 / fan_in, the same for every variant. They are uniform for speed."""
        source = torch.Generator(self.device).manual_seed(seed)
        bound = (3 / fan_in) ** 0.5
        return torch.empty(shape, device=self.device, dtype=self.dtype).uniform_(-bound, bound, generator=source)

    def parameter(self, *shape: int, fan_in: int, seed: int) -> nn.Parameter:
        return nn.Parameter(self.uniform(*shape, fan_in=fan_in, seed=seed))

    def tokens(self, size: Size) -> Tensor:
        """Return the input of every variant, [S, M], as a leaf."""
        return self.uniform(size.tokens, size.model).requires_grad_()


@dataclass(kw_only=True)
class Case:
    """A case to measure.

    forward: function that returns the outputs.
    weights, inputs: leaves that get gradients.
    flops: useful FLOPs of forward and backward.
    """

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
        """Run forward, and backward if an output needs it. Gradients of outputs are fixed, and 1 for a scalar loss."""
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
