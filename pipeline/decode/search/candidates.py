"""Selection of the best continuations of hypotheses, in few passes over the logits.

n sentences, K beam, B = n·K, V vocabulary, C chunks of the vocabulary, X candidates of a sentence.
"""

import torch
from torch import Tensor

from pipeline.model.precision import at_least_float32

CHUNK = 64  # neighbouring tokens; the largest logit of each chunk is compared first
BLOCK = 1 << 17  # logits that a CPU works on at once, few enough to stay in its cache


def log_normalizer(logits_BV: Tensor) -> Tensor:
    """Return the logarithm of the softmax's denominator [B], at least in float32. The first logit must be finite.

    It is taken from log_softmax, which reads a row once; logsumexp reads it several times.
    """
    rows = max(1, BLOCK // logits_BV.shape[1]) if logits_BV.is_cpu else max(1, len(logits_BV))
    blocks = [at_least_float32(block_XV) for block_XV in torch.split(logits_BV, rows)]
    return torch.cat([block_XV[:, 0] - block_XV.log_softmax(dim=-1)[:, 0] for block_XV in blocks])


def best(logits_BV: Tensor, score_nK: Tensor, normalizer_B: Tensor, num: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return score, parent (0 to K - 1) and token [n, X] of the X = `num` best continuations of each sentence.

    The best continuation comes first. The lower parent wins a tie, then the lower token.
    Each of the `num` best is in one of the `num` chunks with the largest maxima, or in the incomplete last chunk.
    logits_BV: -inf for a banned token.
    score_nK: log-probabilities of the hypotheses so far.
    normalizer_B: from `log_normalizer`.
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
    place_nX = top(total_nX, num, index_nX)
    index_nX = index_nX.gather(1, place_nX)
    return total_nX.gather(1, place_nX), index_nX // V, index_nX % V


def top(score_nX: Tensor, num: int, index_nX: Tensor | None = None) -> Tensor:
    """Return the places of the `num` largest scores of each row, in falling order. The lower index wins a tie.

    index_nX: an index below 2^32 for each score; its place in the row by default.
    """
    if index_nX is None:
        index_nX = torch.arange(score_nX.shape[1], device=score_nX.device).expand_as(score_nX)
    if score_nX.dtype == torch.float64:
        order_nX = index_nX.argsort(dim=1)
        falling = score_nX.gather(1, order_nX).argsort(dim=1, descending=True, stable=True)
        return order_nX.gather(1, falling[:, :num])
    # One integer holds the score's bits, ordered like the score, above the index. So one topk sorts by both.
    bits = (score_nX + 0.0).view(torch.int32)  # adding 0.0 turns -0.0 into 0.0
    ordered = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long()
    return ((ordered << 32) - index_nX).topk(num, dim=1).indices
