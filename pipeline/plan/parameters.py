"""The number of parameters of a model, and the number that one process holds."""

from dataclasses import dataclass

from pipeline.model.flops import count_parameters
from pipeline.plan.shapes import process_shapes, shapes
from pipeline.plan.workload import Setup, Workload


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Numbers of parameters.

    total: all parameters of the model.
    active: all but those of experts that a token does not visit.
    experts: parameters of all experts.
    replicated: parameters that every process holds a copy of.
    per_device: parameters that one process holds.
    """

    total: int
    active: int
    experts: int
    replicated: int
    per_device: int


def count(workload: Workload, setup: Setup) -> Parameters:
    """Count the parameters of the model and those of one process under the layout."""
    model = count_parameters(
        workload.model,
        source_vocabulary=workload.source_vocabulary,
        target_vocabulary=workload.target_vocabulary,
        shared=workload.shared,
    )
    wholes, parts = shapes(workload), process_shapes(workload, setup.layout)
    return Parameters(
        total=model.total,
        active=model.active,
        experts=sum(whole.elements for whole in wholes if whole.expert),
        replicated=sum(part.elements for whole, part in zip(wholes, parts, strict=True) if whole.sizes == part.sizes),
        per_device=sum(part.elements for part in parts),
    )
