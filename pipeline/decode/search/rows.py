"""The unfinished and finished hypotheses of a batch of sentences, for beam search and for sampling.

n sentences, K hypotheses of each, B = n·K rows, L source length, T room for target tokens, V vocabulary, F hypotheses
that end at a step.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from pipeline.decode.config import DecodeConfig
from pipeline.decode.search.bans import ban, force
from pipeline.decode.search.candidates import log_normalizer
from pipeline.decode.search.ensemble import Ensemble, EnsembleState, members_of
from pipeline.decode.search.hypothesis import Hypothesis, Request, length_penalty, max_length
from pipeline.decode.search.incremental import DecoderState
from pipeline.model.transformer import Transformer
from pipeline.vocab.symbols import EOS, PAD


class Rows:
    """A batch with K rows of each sentence, each row a hypothesis that grows.

    A sentence is done when it has K finished hypotheses, or at its length limit. Its rows are idle then, and no expert
    computes on them. They stay until the batch shrinks to its next size (`batch_size`).
    length: tokens of every row so far, prefix included.
    score_nK: log-probability of each row after its prefix.
    live_nK: False for an idle row.
    finished: finished hypotheses of each request, best first.
    """

    def __init__(self, model: Transformer | Ensemble, requests: Sequence[Request], config: DecodeConfig) -> None:
        device, n, K = model.target_embedding_VM.device, len(requests), config.hypotheses
        self.config, self.requests = config, requests
        self.sentences = list(range(n))  # index of the request whose rows these are
        self.limits = [len(request.prefix) + max_length(len(request.source), config) for request in requests]
        self.limit_n1 = torch.tensor(self.limits, device=device).unsqueeze(1)
        room, with_coverage = max(self.limits), config.coverage_penalty > 0
        source_BL = padded([request.source for request in requests], device)
        model.reach(max(room, source_BL.shape[1]))
        states = [
            DecoderState(
                member,
                source_BL,
                beam=K,
                max_length=room,
                memory=config.beam_memory,
                attention=with_coverage,
                pair_n=pair_numbers(member.config.moe.pairs, requests, device),
            )
            for member in members_of(model)
        ]
        self.state: DecoderState | EnsembleState = states[0]
        if isinstance(model, Ensemble):
            self.state = EnsembleState(states, model.mean)
        self.tokens_BT = torch.full((n * K, room + 1), EOS, device=device)  # the decoder starts with `</s>`
        self.prefix_nT = padded([[*request.start, *request.prefix] for request in requests], device)
        self.start_n1 = torch.tensor([[len(request.prefix)] for request in requests], device=device)
        self.length = 0
        dtype = torch.promote_types(model.target_embedding_VM.dtype, torch.float32)
        self.score_nK = torch.zeros(n, K, device=device, dtype=dtype)
        self.live_nK = torch.ones(n, K, device=device, dtype=torch.bool)
        self.coverage_BL = self.score_nK.new_zeros(n * K, source_BL.shape[1]) if with_coverage else None
        self.source_nL = source_BL
        self.finished: list[list[Hypothesis]] = [[] for _ in requests]
        self._busy = set(self.sentences)
        self._all_live = True

    @property
    def busy(self) -> bool:
        """True until all sentences are done."""
        return bool(self._busy)

    @property
    def at_limit_n1(self) -> Tensor:
        """True [n, 1] for a sentence whose next token is its last."""
        return self.limit_n1 == self.length + 1

    def next_logits(self) -> tuple[Tensor, Tensor]:
        """Return the logits [B, V] of the next tokens, and the logarithm of the softmax's denominator [B].

        A token that is not allowed has a logit of -inf, but it counts in the denominator. Inside a prefix, the
        prefix's token is certain.
        """
        live_B = None if self._all_live else self.live_nK.flatten()
        logits_BV = self.state.step(self.tokens_BT[:, self.length], live_B)
        normalizer_B = log_normalizer(logits_BV)
        if self.coverage_BL is not None:
            self.coverage_BL += self.state.attention_BL
        new_B = (self.length - self.start_n1).expand_as(self.live_nK).flatten()
        ban(logits_BV, self.tokens_BT[:, 1 : self.length + 1], new_B, self.config)
        if self.length < self.prefix_nT.shape[1]:
            force(logits_BV, normalizer_B, self.prefix_nT[:, self.length].repeat_interleave(self.live_nK.shape[1]))
        return logits_BV, normalizer_B

    def finish(self, ends_nK: Tensor, parent_nK: Tensor, token_nK: Tensor, score_nK: Tensor) -> None:
        """Store the candidates that end at this step, and mark the sentences that are done.

        Raises ValueError if a sentence has no finished hypothesis at its length limit.
        ends_nK: True for a candidate that ends.
        parent_nK: row of its sentence that each candidate continues.
        token_nK, score_nK: last token of each candidate, and its log-probability.
        """
        place_F2 = (ends_nK & self.live_nK & score_nK.isfinite()).nonzero()
        if not len(place_F2) and self.length + 1 not in self.limits:
            return
        row_F, at = place_F2[:, 0], place_F2.unbind(1)
        self._store(row_F, row_F * ends_nK.shape[1] + parent_nK[at], token_nK[at], score_nK[at])
        done_rows = [
            row for row, sentence in enumerate(self.sentences) if sentence in self._busy and self._is_done(sentence)
        ]
        self._busy -= {self.sentences[row] for row in done_rows}
        self.live_nK[done_rows] = False
        self._all_live = False

    def _store(self, row_F: Tensor, parent_F: Tensor, token_F: Tensor, score_F: Tensor) -> None:
        tokens_FT = torch.cat((self.tokens_BT[parent_F, 1 : self.length + 1], token_F.unsqueeze(1)), dim=1)
        coverage_F = self._coverage(row_F, parent_F).tolist()
        for row, tokens, score, coverage in zip(
            row_F.tolist(), tokens_FT.tolist(), score_F.tolist(), coverage_F, strict=True
        ):
            sentence = self.sentences[row]
            penalty = length_penalty(len(tokens) - len(self.requests[sentence].prefix), self.config)
            ended = tokens[-1] == EOS
            hypothesis = Hypothesis(
                tokens=tokens[:-1] if ended else tokens, score=score / penalty + coverage, at_limit=not ended
            )
            hypotheses = [*self.finished[sentence], hypothesis]
            self.finished[sentence] = sorted(hypotheses, key=lambda h: -h.score)[: self.config.hypotheses]

    def _coverage(self, row_F: Tensor, parent_F: Tensor) -> Tensor:
        """Return β · Σ log(min(Σ p, 1)) over the source tokens (arXiv:1609.08144, equation 14), or 0 without β."""
        if self.coverage_BL is None:
            return torch.zeros(len(row_F))
        tiny = torch.finfo(self.coverage_BL.dtype).tiny
        log_FL = self.coverage_BL[parent_F].clamp(tiny, 1).log()
        return self.config.coverage_penalty * log_FL.masked_fill(self.source_nL[row_F] == PAD, 0).sum(dim=1)

    def _is_done(self, sentence: int) -> bool:
        at_limit = self.length + 1 == self.limits[sentence]
        if at_limit and not self.finished[sentence]:
            raise ValueError(
                f"sentence {self.requests[sentence].number} has no hypothesis with a finite score: the model's outputs "
                f"are not finite with decode.precision={self.config.precision}, or decode.no_repeat_ngram="
                f"{self.config.no_repeat_ngram} bans every token; take fp32, or a larger n"
            )
        return at_limit or len(self.finished[sentence]) == self.config.hypotheses

    def extend(self, score_nK: Tensor, token_nK: Tensor, parent_nK: Tensor | None = None) -> Tensor | None:
        """Add a token to every row. Returns the sentences of the batch that remain if it shrinks, else None.

        score_nK, token_nK: new log-probability and new token of each row.
        parent_nK: row of its sentence that each row continues; None if each continues itself.
        """
        if not self._busy:
            return None
        n, K = score_nK.shape
        if parent_nK is not None and K > 1:
            parent_B = (parent_nK + torch.arange(n, device=parent_nK.device).unsqueeze(1) * K).flatten()
            self.tokens_BT[:, : self.length + 1] = self.tokens_BT[parent_B, : self.length + 1]
            self.state.reorder(parent_B)
            if self.coverage_BL is not None:
                self.coverage_BL = self.coverage_BL[parent_B]
        self.length += 1
        self.tokens_BT[:, self.length] = token_nK.flatten()
        self.score_nK = score_nK
        return self._shrink() if batch_size(len(self._busy)) < n else None

    def _shrink(self) -> Tensor:
        """Drop idle sentences, except those that fill the batch up to its next size.

        Busy ones beyond that size take the places of idle ones, so that few rows are moved.
        """
        K, device = self.config.hypotheses, self.score_nK.device
        size, busy = batch_size(len(self._busy)), [sentence in self._busy for sentence in self.sentences]
        beyond = (row for row in range(size, len(busy)) if busy[row])
        kept = [row if busy[row] else next(beyond, row) for row in range(size)]
        kept_n = torch.tensor(kept, device=device)
        row_B = (kept_n.unsqueeze(1) * K + torch.arange(K, device=device)).flatten()
        self.state.keep(kept_n)
        self.sentences = [self.sentences[row] for row in kept]
        self.tokens_BT = self.tokens_BT[row_B]
        self.coverage_BL = None if self.coverage_BL is None else self.coverage_BL[row_B]
        self.score_nK, self.live_nK, self.limit_n1 = self.score_nK[kept_n], self.live_nK[kept_n], self.limit_n1[kept_n]
        self.prefix_nT, self.start_n1 = self.prefix_nT[kept_n], self.start_n1[kept_n]
        self.source_nL = self.source_nL[kept_n]
        return kept_n


def batch_size(num_sentences: int) -> int:
    """Return the smallest size that holds so many sentences: 1, 2, … 16, 18, … 32, 36, … 64, 72, … 128, …"""
    step = max(1, (1 << (num_sentences - 1).bit_length()) // 16)
    return -(-num_sentences // step) * step


def pair_numbers(pairs: Sequence[str], requests: Sequence[Request], device: torch.device) -> Tensor | None:
    """Return the index [n] of each request's pair; None if there are no pairs, because no gate chooses by task.

    Raises ValueError for a pair that is not among them.
    """
    if not pairs:
        return None
    for request in requests:
        if request.pair not in pairs:
            raise ValueError(
                f"the direction {request.pair or 'without a source language'} has no experts: the model's gates choose "
                f"them by task, and it was trained on {', '.join(pairs)}; choose one of these"
            )
    return torch.tensor([pairs.index(request.pair) for request in requests], device=device)


def padded(sequences: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Return a tensor with one sequence in each row, filled with padding."""
    longest = max(map(len, sequences))
    rows = [[*sequence, *[PAD] * (longest - len(sequence))] for sequence in sequences]
    return torch.tensor(rows, dtype=torch.long, device=device)
