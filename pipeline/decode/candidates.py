"""The best continuations among a vocabulary's worth of each hypothesis.

n sentences, K beam, B = n·K, V vocabulary, X candidates kept of a sentence.
"""

from torch import Tensor

from pipeline.model.choices import at_least_float32


def log_normalizer(logits_BV: Tensor) -> Tensor:
    """Logarithm of the softmax's denominator [B]."""
    return at_least_float32(logits_BV).logsumexp(dim=-1)


def best(logits_BV: Tensor, score_nK: Tensor, normalizer_B: Tensor, num: int) -> tuple[Tensor, Tensor, Tensor]:
    """The `num` best continuations of each sentence's hypotheses: score, parent (0 to K - 1) and token [n, X], best
    first. score_nK: log-probabilities so far; a banned token has a logit of -inf."""
    n, K = score_nK.shape
    V = logits_BV.shape[1]
    total_BV = at_least_float32(logits_BV) + (score_nK.flatten() - normalizer_B).unsqueeze(1)
    score_nX, index_nX = total_BV.view(n, K * V).topk(num, dim=1)
    return score_nX, index_nX // V, index_nX % V
