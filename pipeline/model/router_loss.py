"""What is measured of a router's logits whatever the gate. G groups, S tokens of a group, E experts."""

import torch
from torch import Tensor

from pipeline.model.gating import at_least_float32


def z_loss(logits_GSE: Tensor, valid_GS: Tensor) -> Tensor:
    """Router z-loss (ST-MoE, arXiv:2202.08906, equation 5), [G]: mean over the group's real tokens of logsumexp², which
    keeps logits small; 0 for an empty group. float32."""
    square_GS = at_least_float32(logits_GSE).logsumexp(dim=-1).square().masked_fill(~valid_GS, 0.0)
    return square_GS.sum(dim=1) / valid_GS.sum(dim=1).clamp(min=1)


@torch.no_grad()
def entropy_sum(logits_GSE: Tensor, valid_GS: Tensor) -> Tensor:
    """Sum over the real tokens of the entropy of softmax(logits), in nats (scalar, float64): ln E each where uniform.

    Without gradient, and with one temporary of the size of the logits.
    """
    gates_GSE = at_least_float32(logits_GSE).softmax(dim=-1)
    entropy_GS: Tensor = torch.special.entr(gates_GSE, out=gates_GSE).sum(dim=-1)
    return entropy_GS.masked_fill(~valid_GS, 0.0).sum(dtype=torch.float64)
