"""Label-smoothed cross-entropy without the intermediate [T, V] copies of a composed one.

T target tokens, M model, V vocabulary.
"""

from typing import Any, Protocol

import torch
from torch import Tensor

from pipeline.model.choices import at_least_float32
from pipeline.model.recompute import again

CHUNK = 1 << 23  # logits at a time
CHUNK_TOKENS = 1024  # at least, so that the matmul stays large


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


class TokenLosses(Protocol):
    """Per-token (nll_T, smooth_T) of hidden states x_TM against a table of the vocabulary: the cross-entropy, and the
    mean of -log p over the vocabulary; float32 at least."""

    def __call__(self, x_TM: Tensor, table_VM: Tensor, target_T: Tensor) -> tuple[Tensor, Tensor]: ...


def token_losses(x_TM: Tensor, table_VM: Tensor, target_T: Tensor) -> tuple[Tensor, Tensor]:
    """`TokenLosses` of the whole vocabulary."""
    nll_T, smooth_T = SmoothedCrossEntropy.apply(x_TM @ table_VM.T, target_T)  # type: ignore[no-untyped-call]
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
    """Per-token (loss_T, nll_T) of the logits x · embedding, a chunk of tokens at a time: the loss is
    (1 - smoothing) · nll + smoothing · mean over V of -log p; nll is the cross-entropy proper, in nats, detached.

    recompute: keep the logits of no chunk, and compute each again in backward. Chunks are the same without, so that the
    gradient of the embedding adds up in the same order.
    """

    def part(x_TM: Tensor, target_T: Tensor) -> tuple[Tensor, Tensor]:
        nll_T, smooth_T = losses(x_TM, embedding_VM, target_T)
        return (1.0 - smoothing) * nll_T + smoothing * smooth_T, nll_T.detach()

    size = max(CHUNK_TOKENS, CHUNK // len(embedding_VM))
    if len(x_TM) <= size:
        return part(x_TM, target_T)
    size = -(-len(x_TM) // -(-len(x_TM) // size))  # as even as can be
    pairs = zip(torch.split(x_TM, size), torch.split(target_T, size), strict=True)
    results = [again(part, *pair, router=None) if recompute else part(*pair) for pair in pairs]
    loss, nll = zip(*results, strict=True)
    return torch.cat(loss), torch.cat(nll)
