"""The parameters of a workload's model by name and shape. Results are kept, since a search asks for them often."""

from collections import defaultdict
from functools import cache

from pipeline.engine.optimizer_kinds import OptimizerGroup
from pipeline.model.components import is_trainable
from pipeline.parallel.layout import Layout
from pipeline.parallel.shapes import Shape, adapter_shapes, parameter_shapes
from pipeline.plan.workload import Workload


@cache
def shapes(workload: Workload) -> tuple[Shape, ...]:
    """Return the shapes of all parameters, in the order of `Transformer.named_parameters`, and then of all adapters."""
    own = parameter_shapes(
        workload.model,
        source_vocabulary=workload.source_vocabulary,
        target_vocabulary=workload.target_vocabulary,
        shared=workload.shared,
    )
    adapters = workload.adapters
    return (*own, *(adapter_shapes(own, adapters.rank, adapters.targets) if adapters else ()))


@cache
def process_shapes(workload: Workload, layout: Layout) -> tuple[Shape, ...]:
    """Return the part of every parameter that one process holds. Raises ValueError if a size does not divide."""
    return tuple(shape.part(layout) for shape in shapes(workload))


@cache
def trained_shapes(workload: Workload, layout: Layout | None = None) -> tuple[Shape, ...]:
    """Return the parameters that train; with a layout, the part of each that one process holds."""
    parts = shapes(workload) if layout is None else process_shapes(workload, layout)
    return tuple(shape for shape in parts if shape.trained and is_trainable(shape.name, workload.trainable))


@cache
def optimizer_groups(
    workload: Workload, layout: Layout | None = None
) -> tuple[tuple[OptimizerGroup, tuple[Shape, ...]], ...]:
    """Return the groups of the optimizer in its order, each with its parameters. layout: as of `trained_shapes`."""
    groups, factors = defaultdict[OptimizerGroup, list[Shape]](list), dict(workload.rate_factors)
    for shape in trained_shapes(workload, layout):
        groups[OptimizerGroup.of(shape.name, len(shape.sizes), factors, is_expert=shape.expert)].append(shape)
    return tuple((group, tuple(groups[group])) for group in sorted(groups))
