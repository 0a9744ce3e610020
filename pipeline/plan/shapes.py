"""The parameters of a workload's model by name and shape."""

from pipeline.parallel.shapes import Shape, parameter_shapes
from pipeline.plan.workload import Workload


def shapes(workload: Workload) -> list[Shape]:
    """Shapes of all parameters, in the order of `Transformer.named_parameters`."""
    return parameter_shapes(
        workload.model,
        source_vocabulary=workload.source_vocabulary,
        target_vocabulary=workload.target_vocabulary,
        shared=workload.shared,
    )
