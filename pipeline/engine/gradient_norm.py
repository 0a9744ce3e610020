"""The gradient norm of the whole model, from the parts in every process's ZeRO partitions.

DeepSpeed's own norm counts a parameter once, or once per model-parallel process. That is wrong for a parameter that is
cut over some axes of the mesh and copied over others.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.model.transformer import Transformer
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.partition import expert_parameters, parameter_cuts


class GradientNorm:
    """The gradient norm of one model under ZeRO."""

    def __init__(self, model: Transformer, zero: Any, mesh: Mesh) -> None:
        self._zero, self._device = zero, mesh.device
        layout, cuts, experts = mesh.layout, parameter_cuts(model, mesh.layout), expert_parameters(model)
        num_holders: dict[int, int] = {}  # processes that hold the same element of the gradient
        for name, parameter in model.named_parameters():
            partitioned = layout.expert_copies if name in experts else layout.batch_axes
            num_holders[id(parameter)] = layout.world // layout.parts((*cuts.get(name, ()), *partitioned))
        self._num_holders = [
            torch.tensor([num_holders[id(parameter)] for parameter in group], dtype=torch.float64, device=mesh.device)
            for group in zero.params_in_partition
        ]

    def __call__(self) -> Tensor:
        """Return the norm in float32, with the loss scale of the gradients. A collective of the world.

        It is infinite or NaN if a gradient is.
        """
        squares = [torch.zeros(1, dtype=torch.float64, device=self._device)]
        for gradients, num_holders in zip(self._gradients(), self._num_holders, strict=True):
            if gradients := gradients[: len(num_holders)]:
                dtype = torch.promote_types(gradients[0].dtype, torch.float32)
                norms = torch.stack(torch._foreach_norm(gradients, 2, dtype=dtype)).double()
                squares.append(norms.square() / num_holders[: len(norms)])
        total = _sum(torch.cat(squares))
        dist.all_reduce(total)
        return total.sqrt().float()

    def _gradients(self) -> list[list[Tensor]]:
        """Return the gradients of every group, in the order of `params_in_partition`.

        Padding without a mark may follow them (contract-tested).
        """
        groups = range(len(self._zero.params_in_partition))
        return [[g for g in self._zero.averaged_gradients[i] if not getattr(g, "_zero_padding", False)] for i in groups]


def _sum(squares: Tensor) -> Tensor:
    """Return the sum. On a CPU it is added in the order of parameters; CUDA has no deterministic kernel for that."""
    return squares.sum() if squares.is_cuda else squares.cumsum(0)[-1]
