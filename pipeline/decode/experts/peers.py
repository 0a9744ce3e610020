"""Processes that share a model's experts. Each decodes its own sentences, and none stops before all have finished.

M model, E experts.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist

from pipeline.model.transformer import Transformer
from pipeline.parallel.mesh import Mesh
from pipeline.stopping import Stopped


class ExpertPeers:
    """The processes of one expert-parallel group, as `search` needs them. Every method is a collective of the group.

    stop: tells if this process was asked to stop.
    title: name of the job, for the error Stopped.
    """

    def __init__(self, mesh: Mesh, *, stop: Callable[[], bool], title: str) -> None:
        self.mesh, self.stop, self.title = mesh, stop, title

    def any(self, busy: bool) -> bool:
        """Tell if any process is busy. Raises Stopped on all of them when one was asked to stop."""
        some_busy, some_stop = self._any(busy, self.stop())
        if some_stop:
            raise Stopped(self.title)
        return some_busy

    def leave(self) -> None:
        """Make the others raise Stopped where they next call `any`, because this process has failed between passes."""
        self._any(False, True)

    def idle(self, model: Transformer, *, decoder: bool) -> None:
        """Compute this process's experts on the tokens of the other processes, and send no tokens to them."""
        rows_0M = model.target_embedding_VM.new_empty(0, model.config.dim)
        for name, moe in model.moe_layers().items():
            if name.startswith("decoder." if decoder else "encoder."):
                counts_E = torch.zeros(moe.num_experts, dtype=torch.int64, device=rows_0M.device)
                moe.experts(rows_0M, counts_E)

    def _any(self, *flags: bool) -> list[bool]:
        """Return for each flag if it is true on any process."""
        flag_values = torch.tensor(flags, dtype=torch.int32, device=self.mesh.device)
        dist.all_reduce(flag_values, op=dist.ReduceOp.MAX, group=self.mesh.group(*self.mesh.expert_axis))
        return [bool(value) for value in flag_values.tolist()]
