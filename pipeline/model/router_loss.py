"""What is measured of a router's logits whatever the gate. G groups, S tokens of a group, E experts."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.model.choices import at_least_float32


def z_loss(logits_GSE: Tensor, valid_GS: Tensor) -> Tensor:
    """Router z-loss (ST-MoE, arXiv:2202.08906, equation 5), [G]: mean over the group's real tokens of logsumexp², which
    keeps logits small; 0 for an empty group. float32."""
    return squared_sum(logits_GSE, valid_GS) / valid_GS.sum(dim=1).clamp(min=1)


def squared_sum(logits_GSE: Tensor, valid_GS: Tensor) -> Tensor:
    """logsumexp² summed over the real tokens of a group, [G]."""
    square_GS = at_least_float32(logits_GSE).logsumexp(dim=-1).square().masked_fill(~valid_GS, 0.0)
    return square_GS.sum(dim=1)


@torch.no_grad()
def entropy_sum(logits_GSE: Tensor, valid_GS: Tensor) -> Tensor:
    """Sum over the real tokens of the entropy of softmax(logits), in nats (scalar, float64): ln E each where uniform.

    Without gradient, and with one temporary of the size of the logits.
    """
    gates_GSE = at_least_float32(logits_GSE).softmax(dim=-1)
    entropy_GS: Tensor = torch.special.entr(gates_GSE, out=gates_GSE).sum(dim=-1)
    return entropy_GS.masked_fill(~valid_GS, 0.0).sum(dtype=torch.float64)


ENTROPY_TOKENS = 512  # of a group, at most: enough for a mean, and cheap beside thousands of experts


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What is wanted of a router's logits beside the gate's decision, so that the logits themselves need not stay.

    z_loss_G: router z-loss of each group, None where it was not asked for; carries the gradient. entropy: of the gates,
    in nats, summed over `sampled` real tokens, evenly spread. not_finite: logits that are NaN or infinite.
    """

    z_loss_G: Tensor | None
    entropy: Tensor
    sampled: Tensor
    not_finite: Tensor


def observe(
    logits_GSE: Tensor, valid_GS: Tensor, *, with_z: bool, z_logits: tuple[Tensor, ...] | None = None
) -> Observed:
    """z_logits: what the z-loss is of where that is not the logits; the sum over all of them."""
    z_loss_G = None
    if with_z:
        z_loss_G = torch.stack([z_loss(z, valid_GS) for z in z_logits or (logits_GSE,)]).sum(dim=0)
    stride = -(-valid_GS.shape[1] // ENTROPY_TOKENS)
    return Observed(
        z_loss_G=z_loss_G,
        entropy=entropy_sum(logits_GSE[:, ::stride], valid_GS[:, ::stride]),
        sampled=valid_GS[:, ::stride].sum(),
        not_finite=(~logits_GSE.isfinite()).sum(),
    )
