"""Bans on the next token of a hypothesis, and tokens that a prefix forces.

B hypotheses, T tokens so far, V vocabulary, N n-grams of a hypothesis.
"""

import torch
from torch import Tensor

from pipeline.decode.config import DecodeConfig
from pipeline.vocab.symbols import BOS, EOS, PAD

NEVER = (BOS, PAD)  # ids that no translation contains


def ban(logits_BV: Tensor, tokens_BT: Tensor, new_B: Tensor, config: DecodeConfig) -> None:
    """Set the logits of tokens that must not come next to -inf, in place. new_B: tokens so far without the prefix."""
    for token in NEVER:
        logits_BV[:, token] = -torch.inf
    if config.min_length:
        logits_BV[:, EOS].masked_fill_(new_B < config.min_length, -torch.inf)
    if 0 < config.no_repeat_ngram <= tokens_BT.shape[1]:
        logits_BV.scatter_(1, repeating(tokens_BT, config.no_repeat_ngram), -torch.inf)


def repeating(tokens_BT: Tensor, n: int) -> Tensor:
    """Return the tokens [B, N] that would make an n-gram occur twice. An entry without such a token is `<s>`."""
    ngram_BNn = tokens_BT.unfold(1, n, 1)
    last_B1n = tokens_BT[:, tokens_BT.shape[1] - n + 1 :].unsqueeze(1)
    matches_BN = (ngram_BNn[..., :-1] == last_B1n).all(dim=-1)
    return ngram_BNn[..., -1].masked_fill(~matches_BN, BOS)


def force(logits_BV: Tensor, normalizer_B: Tensor, token_B: Tensor) -> None:
    """Make `token_B` certain in rows where it is not padding, in place. Rows with padding stay as they are."""
    forced_B = token_B != PAD
    logits_BV.masked_fill_(forced_B.unsqueeze(1), -torch.inf)
    normalizer_B.masked_fill_(forced_B, 0)
    logit_B1 = logits_BV.gather(1, token_B.unsqueeze(1)).masked_fill(forced_B.unsqueeze(1), 0)
    logits_BV.scatter_(1, token_B.unsqueeze(1), logit_B1)
