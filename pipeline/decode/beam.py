"""Beam search over a batch of sentences.

n sentences, K beam, B = n·K, V vocabulary, T length so far.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.decode.config import DecodeConfig
from pipeline.decode.incremental import DecoderState
from pipeline.model.transformer import Transformer
from pipeline.vocab.symbols import BOS, EOS, PAD

NEVER = (BOS, PAD)  # ids that no translation contains


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """tokens: without `</s>`. score: log-probability over GNMT's length penalty."""

    tokens: list[int]
    score: float


def length_penalty(length: int, alpha: float) -> float:
    """GNMT, arXiv:1609.08144, equation 14: ((5 + |Y|) / 6)^α; |Y| counts `</s>`."""
    return float(((5 + length) / 6) ** alpha)


@torch.inference_mode()
def beam_search(model: Transformer, sources: Sequence[Sequence[int]], config: DecodeConfig) -> list[Hypothesis]:
    """The best hypothesis of each source (token ids with tag and `</s>`).

    A sentence is done when it has K finished hypotheses, or at its length limit, where the best unfinished one counts.
    """
    model.eval()
    device = model.target_embedding_VM.device
    source_BL = pad(sources, device)
    limits = [max_length(len(source), config) for source in sources]
    search = _Search(model, source_BL, limits, config)
    while search.active:
        search.step()
    return [max(found, key=lambda h: h.score) for found in search.finished]


def max_length(source_tokens: int, config: DecodeConfig) -> int:
    """Most target tokens, `</s>` counted."""
    return int(config.max_length_ratio * source_tokens) + config.max_length_extra


def pad(sequences: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    longest = max(map(len, sequences))
    return torch.tensor([[*s, *[PAD] * (longest - len(s))] for s in sequences], device=device)


class _Search:
    """The beams of the sentences that are not done yet."""

    def __init__(self, model: Transformer, source_BL: Tensor, limits: list[int], config: DecodeConfig) -> None:
        self.config, self.limits = config, limits
        K, device = config.beam, source_BL.device
        self.state = DecoderState(model, source_BL, beam=K, max_length=max(limits))
        self.active = list(range(len(limits)))  # sentence of each K rows
        self.finished: list[list[Hypothesis]] = [[] for _ in limits]
        self.tokens_BT = torch.full((len(limits) * K, 1), EOS, device=device)
        self.score_nK = torch.full((len(limits), K), -torch.inf, device=device)
        self.score_nK[:, 0] = 0.0  # all hypotheses are equal at first: let one of them speak

    def step(self) -> None:
        K, n = self.config.beam, len(self.active)
        logp_BV = self.state.step(self.tokens_BT[:, -1])
        logp_BV[:, NEVER] = -torch.inf
        V = logp_BV.shape[1]
        total_nX = (self.score_nK.view(-1, 1) + logp_BV).view(n, K * V)
        score_n2K, index_n2K = total_nX.topk(2 * K, dim=1)  # at most K of them end, so K go on
        parent_n2K, token_n2K = index_n2K // V, index_n2K % V
        length = self.tokens_BT.shape[1]  # tokens of the new hypotheses, the first `</s>` not counted
        self._collect(score_n2K, parent_n2K, token_n2K, length)
        going_n2K = token_n2K != EOS
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
        penalty = length_penalty(length, self.config.length_penalty)
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
                    score = float(self.score_nK[row, 0]) / length_penalty(length + 1, self.config.length_penalty)
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
