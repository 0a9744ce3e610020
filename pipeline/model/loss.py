"""Label-smoothed cross-entropy, which makes fewer [T, V] tensors than one composed of torch's functions.

T target tokens, M model, V vocabulary.
"""

from typing import Any, Protocol

import torch
from torch import Tensor

from pipeline.model.precision import at_least_float32
from pipeline.model.projection import project_to_table
from pipeline.model.recompute import recomputed

CHUNK = 1 << 23  # logits of a chunk of tokens
CHUNK_TOKENS = 1024  # tokens of a chunk at least, so that the matmul stays large


class SmoothedCrossEntropy(torch.autograd.Function):
    """Computes nll_T = -log p(target), and smooth_T, the mean of -log p over the vocabulary, in float32."""

    @staticmethod
    def forward(ctx: Any, logits_TV: Tensor, target_T: Tensor) -> tuple[Tensor, Tensor]:
        kept_TV, logits_TV = logits_TV, at_least_float32(logits_TV)
        log_sum_T = logits_TV.logsumexp(dim=-1)
        ctx.save_for_backward(kept_TV, target_T, log_sum_T)  # in 16 bits under autocast
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


class TokenLosses(Protocol):
    """A function that returns (nll_T, smooth_T) for hidden states x_TM and the table of a vocabulary.

    nll_T: cross-entropy of the target, in float32 at least.
    smooth_T: mean of -log p over the vocabulary.
    """

    def __call__(self, x_TM: Tensor, table_VM: Tensor, target_T: Tensor) -> tuple[Tensor, Tensor]: ...


def token_losses(x_TM: Tensor, table_VM: Tensor, target_T: Tensor) -> tuple[Tensor, Tensor]:
    """Return nll_T and smooth_T of `TokenLosses`, where the whole vocabulary is on this process."""
    nll_T, smooth_T = SmoothedCrossEntropy.apply(project_to_table(x_TM, table_VM), target_T)  # type: ignore[no-untyped-call]
    return nll_T, smooth_T


def vocabulary_loss(
    x_TM: Tensor,
    embedding_VM: Tensor,
    target_T: Tensor,
    smoothing: float,
    *,
    recompute: bool,
    losses: TokenLosses = token_losses,
) -> tuple[Tensor, Tensor]:
    """Return (loss_T, nll_T) of the logits x · embedding, computed for a chunk of tokens at a time.

    loss_T: (1 - smoothing) · nll + smoothing · (mean over V of -log p).
    nll_T: the cross-entropy in nats, detached.
    recompute: keep no logits, and compute the logits of each chunk again in backward. Chunks do not depend on it, so
        that the gradient of the embedding is summed in the same order.
    """

    def part(x_TM: Tensor, target_T: Tensor) -> tuple[Tensor, Tensor]:
        nll_T, smooth_T = losses(x_TM, embedding_VM, target_T)
        return (1.0 - smoothing) * nll_T + smoothing * smooth_T, nll_T.detach()

    size = max(CHUNK_TOKENS, CHUNK // len(embedding_VM))
    if len(x_TM) <= size:
        return part(x_TM, target_T)
    size = -(-len(x_TM) // -(-len(x_TM) // size))  # chunks of nearly equal size
    pairs = zip(torch.split(x_TM, size), torch.split(target_T, size), strict=True)
    results = [recomputed(part, *pair, router=None) if recompute else part(*pair) for pair in pairs]
    loss, nll = zip(*results, strict=True)
    return torch.cat(loss), torch.cat(nll)
