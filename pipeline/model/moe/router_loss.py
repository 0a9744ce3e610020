"""Losses and statistics of a router's logits that every gate has. G groups, S tokens of a group, E experts."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.model.moe.gates.choices import log_scores
from pipeline.model.precision import at_least_float32


def z_loss(logits_GSE: Tensor, valid_GS: Tensor) -> Tensor:
    """Return the router z-loss [G] in float32 (ST-MoE, arXiv:2202.08906, equation 5), which keeps logits small.

    It is the mean of logsumexp² over the real tokens of a group, 0 for an empty group.
    """
    square_GS = at_least_float32(logits_GSE).logsumexp(dim=-1).square().masked_fill(~valid_GS, 0.0)
    return square_GS.sum(dim=1) / valid_GS.sum(dim=1).clamp(min=1)


@torch.no_grad()
def entropy_sum(logits_GSE: Tensor, valid_GS: Tensor) -> Tensor:
    """Return the entropy of softmax(logits) in nats, summed over the real tokens (scalar, float64).

    A token with a uniform gate has ln E. The result has no gradient. It takes one temporary of the size of the logits.
    """
    gates_GSE = at_least_float32(logits_GSE).softmax(dim=-1)
    entropy_GS: Tensor = torch.special.entr(gates_GSE, out=gates_GSE).sum(dim=-1)
    return entropy_GS.masked_fill(~valid_GS, 0.0).sum(dtype=torch.float64)


ENTROPY_TOKENS = 512  # sampled tokens of a group at most: enough for a mean, and cheap with thousands of experts


@dataclass(frozen=True, kw_only=True)
class Observed:
    """Statistics of a router's logits, computed at once so that the logits need not be kept.

    z_loss_G: router z-loss of each group with gradient, or None if its weight is 0.
    entropy: entropy of the gates in nats, summed over `sampled` real tokens, evenly spaced.
    not_finite: logits that are NaN or infinite.
    """

    z_loss_G: Tensor | None
    entropy: Tensor
    sampled: Tensor
    not_finite: Tensor


def observe(
    logits_GSE: Tensor,
    valid_GS: Tensor,
    *,
    with_z: bool,
    z_logits: tuple[Tensor, ...] | None = None,
    sigmoid: bool = False,
) -> Observed:
    """Return the statistics of logits.

    z_logits: other logits for the z-loss, which is the sum of their z-losses.
    sigmoid: gates are sigmoids of the logits divided by their sum, not a softmax.
    """
    z_loss_G = None
    if with_z:
        z_loss_G = torch.stack([z_loss(z, valid_GS) for z in z_logits or (logits_GSE,)]).sum(dim=0)
    stride = -(-valid_GS.shape[1] // ENTROPY_TOKENS)
    return Observed(
        z_loss_G=z_loss_G,
        entropy=entropy_sum(log_scores(logits_GSE[:, ::stride], sigmoid=sigmoid), valid_GS[:, ::stride]),
        sampled=valid_GS[:, ::stride].sum(),
        not_finite=torch.count_nonzero(logits_GSE.detach() - logits_GSE.detach()),  # inf - inf is NaN, which is not 0
    )
