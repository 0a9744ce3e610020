"""How many parameters there are, and how many of them one process holds."""

from dataclasses import dataclass

from pipeline.model.flops import count_parameters
from pipeline.plan.shapes import shapes
from pipeline.plan.workload import Setup, Workload


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """total: the model's. active: without the experts that a token does not visit. experts: of all experts. replicated:
    what every process holds alike. per_device: what one process holds."""

    total: int
    active: int
    experts: int
    replicated: int
    per_device: int


def count(workload: Workload, setup: Setup) -> Parameters:
    """Of the model, and of one process under the layout."""
    both = count_parameters(
        workload.model,
        source_vocabulary=workload.source_vocabulary,
        target_vocabulary=workload.target_vocabulary,
        shared=workload.shared,
    )
    cut = [(shape, shape.part(setup.layout)) for shape in shapes(workload)]
    return Parameters(
        total=both.total,
        active=both.active,
        experts=sum(whole.elements for whole, _ in cut if whole.expert),
        replicated=sum(whole.elements for whole, part in cut if whole.sizes == part.sizes),
        per_device=sum(part.elements for _, part in cut),
    )
