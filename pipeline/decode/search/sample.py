"""Sampling of hypotheses. Each draw is a function of the seed, the sentence, the draw's number and the position.

n sentences, K draws of each, B = n·K, V vocabulary.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from pipeline.decode.config import DecodeConfig
from pipeline.decode.search.ensemble import Ensemble
from pipeline.decode.search.hypothesis import Request
from pipeline.decode.search.rows import Rows
from pipeline.model.precision import at_least_float32
from pipeline.model.transformer import Transformer
from pipeline.vocab.symbols import EOS

_PART = 40  # bit from which on a sentence's number holds the number of its part
_GAMMA = 0x9E3779B97F4A7C15 - (1 << 64)  # constants of SplitMix64, as signed numbers
_FACTORS = (0xBF58476D1CE4E5B9 - (1 << 64), 0x94D049BB133111EB - (1 << 64))


class Sampling:
    """A search that draws K hypotheses of each sentence and adds one token to them at each step.

    A hypothesis is scored by its probability under the model. Temperature, top_k and top_p do not affect the score.
    """

    def __init__(self, model: Transformer | Ensemble, requests: Sequence[Request], config: DecodeConfig) -> None:
        self.config = config
        self.rows = Rows(model, requests, config)
        device = self.rows.score_nK.device
        number_n = torch.tensor([request.number + (request.part << _PART) for request in requests], device=device)
        self.draw_nK = torch.arange(config.hypotheses, device=device).expand(len(requests), -1)
        self.key_nK = keys(config.seed, number_n.unsqueeze(1), self.draw_nK)

    def step(self) -> None:
        """Add one token to every hypothesis."""
        rows = self.rows
        logits_BV, normalizer_B = rows.next_logits()
        token_B1 = draw(logits_BV, uniform(self.key_nK.flatten(), rows.length), self.config).unsqueeze(1)
        logit_B = at_least_float32(logits_BV.gather(1, token_B1)).squeeze(1)
        token_nK = token_B1.view_as(self.draw_nK)
        score_nK = rows.score_nK + (logit_B - normalizer_B).view_as(rows.score_nK)
        ends_nK = (token_nK == EOS) | rows.at_limit_n1
        rows.finish(ends_nK, self.draw_nK, token_nK, score_nK)
        rows.live_nK &= ~ends_nK
        kept_n = rows.extend(score_nK, token_nK)
        if kept_n is not None:
            self.key_nK, self.draw_nK = self.key_nK[kept_n], self.draw_nK[kept_n]


def draw(logits_BV: Tensor, uniform_B: Tensor, config: DecodeConfig) -> Tensor:
    """Return the tokens [B] whose cumulated probability first exceeds the draw, after temperature, top_k and top_p.

    uniform_B: draws from [0, 1).
    """
    logits_BV = at_least_float32(logits_BV) / config.temperature
    if 0 < config.top_k < logits_BV.shape[1]:
        lowest_B1 = logits_BV.topk(config.top_k, dim=1).values[:, -1:]
        logits_BV = logits_BV.masked_fill(logits_BV < lowest_B1, -torch.inf)
    if config.top_p < 1:
        logits_BV = _nucleus(logits_BV, config.top_p)
    total_BV = logits_BV.softmax(dim=1).double().cumsum(dim=1)
    target_B1 = uniform_B.unsqueeze(1) * total_BV[:, -1:]
    token_B1 = torch.searchsorted(total_BV, target_B1, right=True)
    return token_B1.squeeze(1).clamp(max=logits_BV.shape[1] - 1)  # logits that are not finite give a place past the end


def _nucleus(logits_BV: Tensor, top_p: float) -> Tensor:
    """Keep the fewest tokens whose probabilities reach top_p (arXiv:1904.09751), and set the others to -inf."""
    sorted_BV, token_BV = logits_BV.softmax(dim=1).sort(dim=1, descending=True, stable=True)
    before_BV = sorted_BV.cumsum(dim=1) - sorted_BV
    outside_BV = torch.zeros_like(token_BV, dtype=torch.bool).scatter_(1, token_BV, before_BV >= top_p)
    return logits_BV.masked_fill(outside_BV, -torch.inf)


def keys(seed: int, number: Tensor, draw: Tensor) -> Tensor:
    """Return an int64 key for each draw of each sentence."""
    seeded = _mix(torch.full_like(number, seed) + _GAMMA)
    return _mix(_mix(seeded + (number + 1) * _GAMMA) + (draw + 1) * _GAMMA)


def uniform(key_B: Tensor, position: int) -> Tensor:
    """Return a float64 of [0, 1) for each key: number `position` of a SplitMix64 generator that starts at the key."""
    return _shift(_mix(key_B + _wrapped((position + 1) * _GAMMA)), 11).double() * 2.0**-53


def _mix(x: Tensor) -> Tensor:
    """Apply the finalizer of SplitMix64 (Steele, Lea and Flood 2014), in int64, which wraps."""
    x = (x ^ _shift(x, 30)) * _FACTORS[0]
    x = (x ^ _shift(x, 27)) * _FACTORS[1]
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Shift to the right, as if x had no sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _wrapped(value: int) -> int:
    """Return the signed 64-bit number that is equal modulo 2^64."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
