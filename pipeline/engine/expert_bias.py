"""Biases that balance experts without a loss (Wang et al., arXiv:2408.15664, Algorithm 1).

L MoE layers whose gate has a bias, E experts.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist

from pipeline.model.moe.layer import MoEStatistics
from pipeline.model.moe.routers import TopKRouter
from pipeline.model.transformer import Transformer


def moving_routers(model: Transformer) -> dict[int, TopKRouter]:
    """Return the routers whose bias moves, by the number of their MoE layer. A frozen router keeps its bias."""
    routers = {index: layer.router for index, layer in enumerate(model.moe_layers().values())}
    return {
        index: router
        for index, router in routers.items()
        if isinstance(router, TopKRouter) and router.bias_E is not None and router.wg_EM.requires_grad
    }


class ExpertBiases:
    """Counts the choices of a step and then moves the biases of a model's gates.

    Counts are integers, so biases are the same bits on any number of processes, as long as the choices are the same.

    group: the processes that share the groups of a step.
    """

    def __init__(self, model: Transformer, group: dist.ProcessGroup) -> None:
        self._group = group
        self._routers = moving_routers(model)
        self._counts = [torch.zeros_like(router.wg_EM[:, 0], dtype=torch.int64) for router in self._routers.values()]

    @torch.no_grad()
    def count(self, statistics: Sequence[MoEStatistics]) -> None:
        """Add the choices of one micro-batch, before capacity. statistics: one entry for every MoE layer."""
        for counts_E, index in zip(self._counts, self._routers, strict=True):
            counts_E += statistics[index].usage_PE.sum(dim=0)

    @torch.no_grad()
    def move(self) -> None:
        """Move each bias by its rate towards a fair share of the counted choices. A collective of the group."""
        if not self._routers:
            return
        counts_LE = torch.stack(self._counts)
        dist.all_reduce(counts_LE, group=self._group)
        for counts_E, router in zip(counts_LE, self._routers.values(), strict=True):
            assert router.bias_E is not None
            direction_E = (counts_E.sum() - len(counts_E) * counts_E).sign()
            # in float32 for any dtype of the model, because checkpoints are
            router.bias_E.copy_(router.bias_E.float() + router.config.bias_rate * direction_E.float())

    def clear(self) -> None:
        """Begin a new step."""
        for counts_E in self._counts:
            counts_E.zero_()
