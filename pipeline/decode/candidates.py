"""The best continuations among a vocabulary's worth of each hypothesis, in few passes over the logits.

n sentences, K beam, B = n·K, V vocabulary, C chunks of a hypothesis' tokens, X candidates of a sentence.
"""

import torch
from torch import Tensor

from pipeline.model.precision import at_least_float32

CHUNK = 64  # tokens of which the largest logit is looked at first
BLOCK = 1 << 17  # logits at a time on a CPU: few enough to stay in its cache


def log_normalizer(logits_BV: Tensor) -> Tensor:
    """Logarithm of the softmax's denominator [B], at least in float32; the first token's logit is finite.

    log_softmax goes over a row once, logsumexp several times.
    """
    rows = max(1, BLOCK // logits_BV.shape[1]) if logits_BV.is_cpu else max(1, len(logits_BV))
    parts = [at_least_float32(part) for part in torch.split(logits_BV, rows)]
    return torch.cat([part[:, 0] - part.log_softmax(dim=-1)[:, 0] for part in parts])


def best(logits_BV: Tensor, score_nK: Tensor, normalizer_B: Tensor, num: int) -> tuple[Tensor, Tensor, Tensor]:
    """The `num` best continuations of each sentence's hypotheses: score, parent (0 to K - 1) and token [n, X], best
    first; the lower parent, then the lower token wins a tie. score_nK: log-probabilities so far; a banned token has a
    logit of -inf.

    What is among the `num` best is in one of the `num` chunks with the largest maxima, or in a row's tail that is no
    whole chunk.
    """
    n, K = score_nK.shape
    V, offset_nK1 = logits_BV.shape[1], (score_nK - normalizer_B.view(n, K)).unsqueeze(2)
    logits_nKV = logits_BV.view(n, K, V)
    C = V // CHUNK
    if num >= K * C:
        total_nX = (at_least_float32(logits_nKV) + offset_nK1).flatten(1)
        index_nX = torch.arange(K * V, device=total_nX.device).expand(n, -1)
    else:
        peak_nKC = at_least_float32(logits_nKV[..., : C * CHUNK].reshape(n, K, C, CHUNK).amax(dim=-1))
        chunk_nX = top((peak_nKC + offset_nK1).flatten(1), num)
        first_nX = chunk_nX // C * V + chunk_nX % C * CHUNK
        inside = torch.arange(CHUNK, device=first_nX.device)
        tail = torch.arange(K * V, device=first_nX.device).view(K, V)[:, C * CHUNK :].flatten()
        index_nX = torch.cat(((first_nX.unsqueeze(2) + inside).flatten(1), tail.expand(n, -1)), dim=1)
        logits_nX = logits_nKV.flatten(1).gather(1, index_nX)
        total_nX = at_least_float32(logits_nX) + offset_nK1.squeeze(2).gather(1, index_nX // V)
    chosen_nX = top(total_nX, num, index_nX)
    index_nX = index_nX.gather(1, chosen_nX)
    return total_nX.gather(1, chosen_nX), index_nX // V, index_nX % V


def top(score_nX: Tensor, num: int, index_nX: Tensor | None = None) -> Tensor:
    """Places of the `num` largest scores of a row, falling; the lower index wins a tie. index_nX: of each score, its
    place by default; below 2^32."""
    if index_nX is None:
        index_nX = torch.arange(score_nX.shape[1], device=score_nX.device).expand_as(score_nX)
    if score_nX.dtype == torch.float64:
        order_nX = index_nX.argsort(dim=1)
        falling = score_nX.gather(1, order_nX).argsort(dim=1, descending=True, stable=True)
        return order_nX.gather(1, falling[:, :num])
    # score and index in one integer: a float's bits in the order of integers above, the index from its end below
    bits = (score_nX + 0.0).view(torch.int32)  # + 0.0: there is one zero
    ordered = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long()
    return ((ordered << 32) - index_nX).topk(num, dim=1).indices
