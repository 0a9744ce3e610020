"""Beam search over a batch of sentences, as transformers' `generate(num_beams=K, early_stopping=True)`.

n sentences, K beam, B = n·K.
"""

from collections.abc import Sequence

import torch

from pipeline.decode.candidates import best
from pipeline.decode.config import DecodeConfig
from pipeline.decode.hypothesis import Request
from pipeline.decode.rows import Rows
from pipeline.model.transformer import Transformer
from pipeline.vocab.symbols import EOS


class BeamSearch:
    """The K best hypotheses of each sentence, a token longer at each step. With K = 1 it is greedy search.

    Of a sentence's 2K best continuations those that end, and are among the K best, are finished, and the K best that do
    not end go on. The K best finished hypotheses are kept, by normalised score. A sentence is done when it has K of
    them, or at its length limit, where those that go on count as finished.
    """

    def __init__(self, model: Transformer, requests: Sequence[Request], config: DecodeConfig) -> None:
        self.beam = config.beam
        self.rows = Rows(model, requests, config)
        self.rows.score_nK[:, 1:] = -torch.inf  # all hypotheses are equal at first: let one of them speak

    def step(self) -> None:
        K, rows = self.beam, self.rows
        logits_BV, normalizer_B = rows.next_logits()
        score_n2K, parent_n2K, token_n2K = best(logits_BV, rows.score_nK, normalizer_B, 2 * K)
        ends_n2K = (token_n2K == EOS) | rows.at_limit_n1
        rows.finish(ends_n2K[:, :K], parent_n2K[:, :K], token_n2K[:, :K], score_n2K[:, :K])
        # at most K of the 2K end before the limit, since a hypothesis ends in one way
        order_nK = ends_n2K.to(torch.int8).argsort(dim=1, stable=True)[:, :K]
        rows.extend(score_n2K.gather(1, order_nK), token_n2K.gather(1, order_nK), parent_n2K.gather(1, order_nK))
