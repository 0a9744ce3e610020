"""The parameters of a workload's model by name and shape. Results are kept, since a search asks for them often."""

from functools import cache

from pipeline.parallel.layout import Layout
from pipeline.parallel.shapes import Shape, parameter_shapes
from pipeline.plan.workload import Workload


@cache
def shapes(workload: Workload) -> tuple[Shape, ...]:
    """Return the shapes of all parameters, in the order of `Transformer.named_parameters`."""
    return tuple(
        parameter_shapes(
            workload.model,
            source_vocabulary=workload.source_vocabulary,
            target_vocabulary=workload.target_vocabulary,
            shared=workload.shared,
        )
    )


@cache
def process_shapes(workload: Workload, layout: Layout) -> tuple[Shape, ...]:
    """Return the part of every parameter that one process holds. Raises ValueError if a size does not divide."""
    return tuple(shape.part(layout) for shape in shapes(workload))
