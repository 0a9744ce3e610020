"""Beam search over a batch of sentences, as in transformers' `generate(num_beams=K, early_stopping=True)`.

n sentences, K beam, B = n·K.
"""

from collections.abc import Sequence

import torch

from pipeline.decode.config import DecodeConfig
from pipeline.decode.search.candidates import best
from pipeline.decode.search.ensemble import Ensemble
from pipeline.decode.search.hypothesis import Request
from pipeline.decode.search.rows import Rows
from pipeline.model.transformer import Transformer
from pipeline.vocab.symbols import EOS


class BeamSearch:
    """A search that keeps the K best hypotheses of each sentence and adds one token to them at each step.

    A step looks at the 2K best continuations of a sentence. Those that end and are among the K best are finished
    hypotheses. The K best that do not end are continued. The K finished hypotheses with the highest normalised score
    are kept. A sentence is done when it has K of them, or at its length limit, where every hypothesis counts as
    finished. With K = 1 it is greedy search.
    """

    def __init__(self, model: Transformer | Ensemble, requests: Sequence[Request], config: DecodeConfig) -> None:
        self.beam = config.beam
        self.rows = Rows(model, requests, config)
        self.rows.score_nK[:, 1:] = -torch.inf  # all hypotheses are equal at first, so only one may be continued

    def step(self) -> None:
        """Add one token to every hypothesis."""
        K, rows = self.beam, self.rows
        logits_BV, normalizer_B = rows.next_logits()
        score_n2K, parent_n2K, token_n2K = best(logits_BV, rows.score_nK, normalizer_B, 2 * K)
        ends_n2K = (token_n2K == EOS) | rows.at_limit_n1
        rows.finish(ends_n2K[:, :K], parent_n2K[:, :K], token_n2K[:, :K], score_n2K[:, :K])
        # before the limit at least K of the 2K do not end, because each hypothesis has only one continuation that ends
        order_nK = ends_n2K.to(torch.int8).argsort(dim=1, stable=True)[:, :K]
        rows.extend(score_n2K.gather(1, order_nK), token_n2K.gather(1, order_nK), parent_n2K.gather(1, order_nK))
