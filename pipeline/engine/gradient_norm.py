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
        self._copies: dict[int, int] = {}  # processes that hold the same element of the gradient
        for name, parameter in model.named_parameters():
            partitioned = layout.expert_copies if name in experts else layout.batch_axes
            self._copies[id(parameter)] = layout.world // layout.parts((*cuts.get(name, ()), *partitioned))

    def __call__(self) -> Tensor:
        """Return the norm in float32, with the loss scale of the gradients. A collective of the world.

        It is infinite or NaN if a gradient is.
        """
        total = torch.zeros((), dtype=torch.float64, device=self._device)
        for gradients, parameters in zip(self._gradients(), self._zero.params_in_partition, strict=True):
            for gradient, parameter in zip(gradients, parameters, strict=False):
                dtype = torch.promote_types(gradient.dtype, torch.float32)
                total += gradient.norm(dtype=dtype).double().square() / self._copies[id(parameter)]
        dist.all_reduce(total)
        return total.sqrt().float()

    def _gradients(self) -> list[list[Tensor]]:
        """Return the gradients of every group, in the order of `params_in_partition`.

        Padding without a mark may follow them (contract-tested).
        """
        groups = range(len(self._zero.params_in_partition))
        return [[g for g in self._zero.averaged_gradients[i] if not getattr(g, "_zero_padding", False)] for i in groups]
