"""The optimizers by name, each with the facts that the rest of the pipeline asks about it. Free of torch.

`optimizer_of` in pipeline/engine/optimizer.py builds them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pipeline.model.components import rate_factor
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
        if not shape.trained:
            return 0
        factors = shape.factors() if self.factored else 0
        return factors or len(self.moments) * shape.elements


class OptimizerGroup(NamedTuple):
    """A group of the optimizer's parameters. Groups are ordered by these values.

    expert: the parameters belong to experts, of which other processes have copies.
    vector: the parameters are vectors, which do not decay.
    factor: factor on the learning rate.
    """

    expert: bool
    vector: bool
    factor: float

    @classmethod
    def of(cls, name: str, num_dims: int, rate_factors: Mapping[str, float], *, is_expert: bool) -> "OptimizerGroup":
        """Return the group of a parameter. A bias [E, 1, H] of experts is a vector of each expert."""
        is_vector = num_dims < 2 or name.rpartition("_")[2].startswith("E1")
        return cls(expert=is_expert, vector=is_vector, factor=rate_factor(name, rate_factors))


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


def checkpoint_bytes(
    shapes: Iterable[Shape], *, optimizer: str, ema: bool, trains: Callable[[str], bool] = lambda name: True
) -> int:
    """Return the bytes of a checkpoint: weights, the state of the optimizer, and the average if `ema`, all float32.

    trains: tells by a parameter's name if the optimizer has state for it.
    """
    kind, copies = optimizer_kind(optimizer), 2 if ema else 1
    elements = sum(copies * shape.elements + trains(shape.name) * kind.state_elements(shape) for shape in shapes)
    return FLOAT * elements
