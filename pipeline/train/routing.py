"""Statistics of the MoE layers of a run, summed over micro-batches and processes.

L MoE layers, P language pairs, E experts.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.model.moe.layer import MoE, MoEStatistics
from pipeline.parallel.mesh import Mesh
from pipeline.train.measure import counted_once

COUNTS = ("tokens", "choices", "kept", "unserved", "rows", "entropy", "sampled", "not_finite")


class RoutingSums:
    """Sums over one step, or over one validation, for all MoE layers. A dense model has no layers."""

    def __init__(self, layers: dict[str, MoE], num_pairs: int, mesh: Mesh) -> None:
        self.mesh = mesh
        self.names = list(layers)
        self._losses = [sorted(layer.loss_weights) for layer in layers.values()]
        self._weights = [layer.loss_weights for layer in layers.values()]
        width = len(COUNTS) + max((len(names) for names in self._losses), default=0)
        self.values_LX = torch.zeros(len(layers), width, dtype=torch.float64, device=mesh.device)
        num_experts = next((layer.num_experts for layer in layers.values()), 0)
        self.usage_LPE = torch.zeros(len(layers), num_pairs, num_experts, dtype=torch.int64, device=mesh.device)

    @torch.no_grad()
    def add(self, statistics: Sequence[MoEStatistics]) -> None:
        """Add one micro-batch. statistics: one entry for every layer."""
        for index, s in enumerate(statistics):
            values = [getattr(s, name) for name in COUNTS]
            values += [s.losses.get(name, torch.zeros_like(s.tokens)) for name in self._losses[index]]
            self.values_LX[index, : len(values)] += torch.stack([value.double() for value in values])
            self.usage_LPE[index] += s.usage_PE

    def clear(self) -> None:
        """Reset the sums of the step. Usage continues to count."""
        self.values_LX.zero_()

    def total(self, count: str) -> float:
        """Return one of `COUNTS`, summed over all layers; 0 for a dense model."""
        return float(self.values_LX[:, COUNTS.index(count)].sum())

    def take_usage(self) -> Tensor:
        """Return the expert choices of all processes since the last call, [L, P, E]. A collective."""
        usage_LPE = counted_once(self.usage_LPE, self.mesh).clone()
        dist.all_reduce(usage_LPE)
        self.usage_LPE.zero_()
        return usage_LPE

    def share_usage(self) -> Tensor:
        """Return what `take_usage` does and keep it, on the first process, so that the next call counts it again."""
        usage_LPE = self.take_usage()
        self.set_usage(usage_LPE)
        return usage_LPE

    def set_usage(self, usage_LPE: Tensor) -> None:
        """Continue from what `share_usage` has returned, on any number of processes."""
        if dist.get_rank() == 0:
            self.usage_LPE.copy_(usage_LPE)

    def check_finite(self, step: int) -> None:
        """Raise ValueError that names the layers whose router gave NaN or infinity. `values_LX` must be reduced."""
        broken = [
            name
            for name, row in zip(self.names, self.values_LX.tolist(), strict=True)
            if row[COUNTS.index("not_finite")]
        ]
        if broken:
            raise ValueError(
                f"NaN or infinite router logits in layer {', '.join(broken)} at step {step}; what was saved before "
                "is kept: lower train.learning_rate, raise train.warmup_steps, or set model.moe.z_weight=0.001"
            )

    def record(self, nonempty_groups: int, usage_LPE: Tensor) -> dict[str, object]:
        """Return values for a record. The sums must be reduced. The result is empty for a dense model.

        aux_loss: the part of the training loss that is auxiliary losses.
        drop_rate: share of choices that full experts dropped.
        experts_per_token: choices served per token.
        layers: for each layer also its auxiliary losses without weights, the share of unserved tokens, the router's
            entropy in nats, and the load of the busiest and the idlest expert, in units of a fair share.
        """
        if not self.names:
            return {}
        layers: dict[str, dict[str, float]] = {}
        aux = 0.0
        for index, (name, row) in enumerate(zip(self.names, self.values_LX.tolist(), strict=True)):
            counts = dict(zip(COUNTS, row, strict=False))
            losses = dict(zip(self._losses[index], row[len(COUNTS) :], strict=False))
            losses = {loss: value / nonempty_groups for loss, value in losses.items()}
            aux += sum(self._weights[index][loss] * value for loss, value in losses.items())
            load_E = usage_LPE[index].sum(dim=0).double()
            share_E = load_E / load_E.mean().clamp(min=1e-9)
            layers[name] = {
                **losses,
                "drop_rate": 1 - counts["kept"] / max(counts["choices"], 1.0),
                "unserved": counts["unserved"] / max(counts["tokens"], 1.0),
                "entropy": counts["entropy"] / max(counts["sampled"], 1.0),
                "load_max": float(share_E.max()),
                "load_min": float(share_E.min()),
            }
        tokens, choices, served = (self.total(name) for name in ("tokens", "choices", "kept"))
        return {
            "aux_loss": aux,
            "drop_rate": 1 - served / max(choices, 1.0),
            "experts_per_token": served / max(tokens, 1.0),
            "layers": layers,
        }


def write_usage(path: Path, *, names: Sequence[str], pairs: Sequence[str], train_LPE: Tensor, dev_LPE: Tensor) -> None:
    """Write expert usage by layer and language pair, as plain arrays (numpy .npz, no pickle).

    train_LPE: usage in training since the previous validation.
    dev_LPE: usage on the development sets, without noise and without drops.
    """
    partial = path.with_name(path.name + ".partial.npz")
    np.savez(
        partial,
        layers=np.array(names, dtype=str),
        pairs=np.array(pairs, dtype=str),
        train=train_LPE.cpu().numpy(),
        dev=dev_LPE.cpu().numpy(),
    )
    partial.replace(path)
