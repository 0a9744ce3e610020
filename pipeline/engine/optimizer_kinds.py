"""The optimizers by name, each with the facts that the rest of the pipeline asks about it. Free of torch.

`optimizer_of` in pipeline/engine/optimizer.py builds them.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pipeline.parallel.shapes import FLOAT, Shape


@dataclass(frozen=True, kw_only=True)
class OptimizerKind:
    """The facts of an optimizer.

    moments: names of the state that has a number for each element of a parameter.
    factored: matrices keep means of rows and columns instead of moments. Processes add them up, as Adafactor does.
    unused: settings of `train` that have no effect.
    accesses: numbers that an update reads or writes in memory, for each element of a parameter.
    launches: operations that an update starts for each parameter.
    temporaries: tensors as large as a parameter that its update holds at once.
    """

    moments: tuple[str, ...]
    factored: bool = False
    unused: tuple[str, ...] = ()
    accesses: int
    launches: int
    temporaries: int = 0

    def state_elements(self, shape: Shape) -> int:
        """Return how many numbers the optimizer keeps for a whole parameter."""
        factors = shape.factors() if self.factored else 0
        return factors or len(self.moments) * shape.elements


OPTIMIZERS = {
    # It is fused: it reads weight, gradient and two moments, and writes all but the gradient.
    "adamw": OptimizerKind(moments=("exp_avg", "exp_avg_sq"), accesses=7, launches=2),
    # It squares gradients and weights, sums over rows and columns, scales by both, squares again and adds the update.
    "adafactor": OptimizerKind(
        moments=("exp_avg_sq",),
        factored=True,
        unused=("beta1", "beta2", "epsilon"),
        accesses=19,
        launches=30,
        temporaries=1,
    ),
}


def optimizer_kind(name: str, key: str = "optimizer") -> OptimizerKind:
    """Return the facts of an optimizer. Raises ValueError for an unknown name, which `key` says where to mend."""
    if name not in OPTIMIZERS:
        raise ValueError(f"{key}={name!r} is not one of {', '.join(OPTIMIZERS)}")
    return OPTIMIZERS[name]


def checkpoint_bytes(shapes: Iterable[Shape], *, optimizer: str, ema: bool) -> int:
    """Return the bytes of a checkpoint: weights, the state of the optimizer, and the average if `ema`, all float32."""
    kind, copies = optimizer_kind(optimizer), 2 if ema else 1
    return FLOAT * sum(copies * shape.elements + kind.state_elements(shape) for shape in shapes)
