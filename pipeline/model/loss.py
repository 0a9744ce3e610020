"""Label-smoothed cross-entropy without the intermediate [T, V] copies of a composed one.

T target tokens, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor

from pipeline.model.choices import at_least_float32


class SmoothedCrossEntropy(torch.autograd.Function):
    """(nll_T, smooth_T) of logits: -log p(y), and the mean of -log p over the vocabulary; float32."""

    @staticmethod
    def forward(ctx: Any, logits_TV: Tensor, target_T: Tensor) -> tuple[Tensor, Tensor]:
        logits_TV = at_least_float32(logits_TV)
        log_sum_T = logits_TV.logsumexp(dim=-1)
        ctx.save_for_backward(logits_TV, target_T, log_sum_T)
        nll_T = log_sum_T - logits_TV.gather(1, target_T.unsqueeze(1)).squeeze(1)
        return nll_T, log_sum_T - logits_TV.mean(dim=-1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        logits_TV, target_T, log_sum_T = ctx.saved_tensors
        grad_nll_T, grad_smooth_T = grads
        grad_TV = (logits_TV - log_sum_T.unsqueeze(1)).exp_()
        grad_TV.mul_((grad_nll_T + grad_smooth_T).unsqueeze(1))
        grad_TV.sub_((grad_smooth_T / logits_TV.shape[1]).unsqueeze(1))
        grad_TV.scatter_add_(1, target_T.unsqueeze(1), -grad_nll_T.unsqueeze(1))
        return grad_TV, None


def smoothed_cross_entropy(logits_TV: Tensor, target_T: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Per-token (loss_T, nll_T): the loss is (1 - smoothing) · nll + smoothing · mean over V of -log p.

    nll_T is the cross-entropy proper, in nats, detached.
    """
    nll_T, smooth_T = SmoothedCrossEntropy.apply(logits_TV, target_T)  # type: ignore[no-untyped-call]
    return (1.0 - smoothing) * nll_T + smoothing * smooth_T, nll_T.detach()
