"""Beam search over a batch of sentences.

n sentences, K beam, B = n·K, V vocabulary, T length so far.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from pipeline.decode.candidates import best, log_normalizer
from pipeline.decode.config import DecodeConfig
from pipeline.decode.incremental import DecoderState
from pipeline.decode.search import NEVER, Hypothesis, Peers, Request, length_penalty, max_length
from pipeline.model.transformer import Transformer
from pipeline.vocab.symbols import EOS, PAD


def beam_search(
    model: Transformer, requests: Sequence[Request], config: DecodeConfig, peers: Peers
) -> list[list[Hypothesis]]:
    """See `search`. A sentence is done when it has K finished hypotheses, or at its length limit."""
    if peers.any(bool(requests)) and not requests:
        peers.idle(model, decoder=False)
    search = _Search(model, requests, config) if requests else None
    while peers.any(search is not None and bool(search.active)):
        if search is not None and search.active:
            search.step()
        else:
            peers.idle(model, decoder=True)
    return [] if search is None else [sorted(f, key=lambda h: -h.score)[: config.n_best] for f in search.finished]


def pad(sequences: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    longest = max(map(len, sequences))
    return torch.tensor([[*s, *[PAD] * (longest - len(s))] for s in sequences], device=device)


class _Search:
    """The beams of the sentences that are not done yet."""

    def __init__(self, model: Transformer, requests: Sequence[Request], config: DecodeConfig) -> None:
        device = model.target_embedding_VM.device
        self.config, K = config, config.beam
        self.limits = [max_length(len(request.source), config) for request in requests]
        source_BL = pad([request.source for request in requests], device)
        self.state = DecoderState(model, source_BL, beam=K, max_length=max(self.limits))
        self.active = list(range(len(requests)))  # sentence of each K rows
        self.finished: list[list[Hypothesis]] = [[] for _ in requests]
        self.tokens_BT = torch.full((len(requests) * K, 1), EOS, device=device)
        self.score_nK = torch.full((len(requests), K), -torch.inf, device=device)
        self.score_nK[:, 0] = 0.0  # all hypotheses are equal at first: let one of them speak

    def step(self) -> None:
        K, n = self.config.beam, len(self.active)
        logits_BV = self.state.step(self.tokens_BT[:, -1])
        normalizer_B = log_normalizer(logits_BV)
        logits_BV[:, NEVER] = -torch.inf
        score_n2K, parent_n2K, token_n2K = best(logits_BV, self.score_nK, normalizer_B, 2 * K)
        length = self.tokens_BT.shape[1]  # tokens of the new hypotheses, the first `</s>` not counted
        self._collect(score_n2K, parent_n2K, token_n2K, length)
        going_n2K = token_n2K != EOS  # at most K of them end, so K go on
        order_nK = (~going_n2K).to(torch.int8).argsort(dim=1, stable=True)[:, :K]
        self.score_nK = score_n2K.gather(1, order_nK).masked_fill(~going_n2K.gather(1, order_nK), -torch.inf)
        parent_B = (parent_n2K.gather(1, order_nK) + torch.arange(n, device=order_nK.device).unsqueeze(1) * K).flatten()
        token_B = token_n2K.gather(1, order_nK).flatten()
        self.tokens_BT = torch.cat((self.tokens_BT[parent_B], token_B.unsqueeze(1)), dim=1)
        self.state.reorder(parent_B)
        self._retire(length)

    def _collect(self, score_n2K: Tensor, parent_n2K: Tensor, token_n2K: Tensor, length: int) -> None:
        """Hypotheses that end here, if they are among the K best candidates."""
        K = self.config.beam
        ended_nK = (token_n2K[:, :K] == EOS) & score_n2K[:, :K].isfinite()
        penalty = length_penalty(length, self.config)
        for row, rank in ended_nK.nonzero().tolist():
            sentence = self.active[row]
            if len(self.finished[sentence]) < K:
                tokens = self.tokens_BT[row * K + int(parent_n2K[row, rank]), 1:].tolist()
                score = float(score_n2K[row, rank]) / penalty
                self.finished[sentence].append(Hypothesis(tokens=tokens, score=score))

    def _retire(self, length: int) -> None:
        """Take leave of sentences that are done."""
        K = self.config.beam
        undone = []
        for row, sentence in enumerate(self.active):
            found = self.finished[sentence]
            if len(found) >= K:
                continue
            if length + 1 >= self.limits[sentence]:
                if not found:
                    score = float(self.score_nK[row, 0]) / length_penalty(length + 1, self.config)
                    found.append(Hypothesis(tokens=self.tokens_BT[row * K, 1:].tolist(), score=score))
                continue
            undone.append(row)
        if len(undone) == len(self.active):
            return
        if undone:
            self.state.keep(torch.tensor(undone, device=self.score_nK.device))
        rows = torch.tensor(
            [r * K + k for r in undone for k in range(K)], dtype=torch.long, device=self.score_nK.device
        )
        self.tokens_BT, self.score_nK = self.tokens_BT[rows], self.score_nK[undone]
        self.active = [self.active[row] for row in undone]
