"""The hypotheses of a batch of sentences while they grow, whatever chooses their tokens.

n sentences, K hypotheses of each, B = n·K rows, L source length, T room for target tokens, V vocabulary, F hypotheses
that end at a step.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from pipeline.decode.bans import ban, force
from pipeline.decode.candidates import log_normalizer
from pipeline.decode.config import DecodeConfig
from pipeline.decode.hypothesis import Hypothesis, Request, length_penalty, max_length
from pipeline.decode.incremental import DecoderState
from pipeline.model.transformer import Transformer
from pipeline.vocab.symbols import EOS, PAD


class Rows:
    """K rows of each sentence that is not done, and some idle rows of those that are.

    A sentence is done when it has K finished hypotheses, or at its length limit. Its rows then stay, without reaching
    an expert, until so few are busy that the batch has its next size (`batch_size`).
    length: tokens of every row, those of a prefix counted. score_nK: log-probability of each row after its prefix.
    live_nK: False for an idle row. found: finished hypotheses of each request, best first.
    """

    def __init__(self, model: Transformer, requests: Sequence[Request], config: DecodeConfig) -> None:
        device, n, K = model.target_embedding_VM.device, len(requests), config.hypotheses
        self.config, self.requests = config, requests
        self.sentences = list(range(n))  # whose rows they are
        self.limits = [len(request.prefix) + max_length(len(request.source), config) for request in requests]
        self.limit_n1 = torch.tensor(self.limits, device=device).unsqueeze(1)
        room, with_coverage = max(self.limits), config.coverage_penalty > 0
        source_BL = padded([request.source for request in requests], device)
        model.reach(max(room, source_BL.shape[1]))
        self.state = DecoderState(
            model, source_BL, beam=K, max_length=room, memory=config.beam_memory, attention=with_coverage
        )
        self.tokens_BT = torch.full((n * K, room + 1), EOS, device=device)  # the decoder starts with `</s>`
        self.prefix_nT = padded([request.prefix for request in requests], device)
        self.start_n1 = (self.prefix_nT != PAD).sum(dim=1, keepdim=True)
        self.length = 0
        dtype = torch.promote_types(model.target_embedding_VM.dtype, torch.float32)
        self.score_nK = torch.zeros(n, K, device=device, dtype=dtype)
        self.live_nK = torch.ones(n, K, device=device, dtype=torch.bool)
        self.coverage_BL = self.score_nK.new_zeros(n * K, source_BL.shape[1]) if with_coverage else None
        self.source_nL = source_BL
        self.found: list[list[Hypothesis]] = [[] for _ in requests]
        self._busy = set(self.sentences)
        self._all_live = True

    @property
    def busy(self) -> bool:
        """Whether some sentence is not done."""
        return bool(self._busy)

    @property
    def at_limit_n1(self) -> Tensor:
        """Whether the next token of a sentence is its last."""
        return self.limit_n1 == self.length + 1

    def next_logits(self) -> tuple[Tensor, Tensor]:
        """Logits [B, V] of the next tokens, -inf where they are not allowed, and the logarithm of the softmax's
        denominator [B] over all tokens. Inside a prefix its token is certain."""
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
        """Note the candidates that end here, of which each continues row `parent` of its sentence, and the sentences
        that are done by it. Raises ValueError where one has nothing to show at its limit."""
        place_F2 = (ends_nK & self.live_nK & score_nK.isfinite()).nonzero()
        if not len(place_F2) and self.length + 1 not in self.limits:
            return
        row_F, at = place_F2[:, 0], place_F2.unbind(1)
        self._note(row_F, row_F * ends_nK.shape[1] + parent_nK[at], token_nK[at], score_nK[at])
        done = [
            row for row, sentence in enumerate(self.sentences) if sentence in self._busy and self._is_done(sentence)
        ]
        self._busy -= {self.sentences[row] for row in done}
        self.live_nK[done] = False
        self._all_live = False

    def _note(self, row_F: Tensor, parent_F: Tensor, token_F: Tensor, score_F: Tensor) -> None:
        tokens_FT = torch.cat((self.tokens_BT[parent_F, 1 : self.length + 1], token_F.unsqueeze(1)), dim=1)
        coverage_F = self._coverage(row_F, parent_F).tolist()
        for row, tokens, score, coverage in zip(
            row_F.tolist(), tokens_FT.tolist(), score_F.tolist(), coverage_F, strict=True
        ):
            sentence = self.sentences[row]
            penalty = length_penalty(len(tokens) - len(self.requests[sentence].prefix), self.config)
            hypothesis = Hypothesis(
                tokens=tokens[:-1] if tokens[-1] == EOS else tokens, score=score / penalty + coverage
            )
            found = [*self.found[sentence], hypothesis]
            self.found[sentence] = sorted(found, key=lambda h: -h.score)[: self.config.hypotheses]

    def _coverage(self, row_F: Tensor, parent_F: Tensor) -> Tensor:
        """β · Σ log(min(Σ p, 1)) over the tokens of the source (arXiv:1609.08144, equation 14), 0 without β."""
        if self.coverage_BL is None:
            return torch.zeros(len(row_F))
        tiny = torch.finfo(self.coverage_BL.dtype).tiny
        log_FL = self.coverage_BL[parent_F].clamp(tiny, 1).log()
        return self.config.coverage_penalty * log_FL.masked_fill(self.source_nL[row_F] == PAD, 0).sum(dim=1)

    def _is_done(self, sentence: int) -> bool:
        if self.length + 1 == self.limits[sentence] and not self.found[sentence]:
            raise ValueError(
                f"sentence {self.requests[sentence].number} has no hypothesis with a finite score: the model's outputs "
                f"are not finite with decode.precision={self.config.precision}, or decode.no_repeat_ngram="
                f"{self.config.no_repeat_ngram} bans every token; take fp32, or a larger n"
            )
        return len(self.found[sentence]) == self.config.hypotheses or self.length + 1 == self.limits[sentence]

    def extend(self, score_nK: Tensor, token_nK: Tensor, parent_nK: Tensor | None = None) -> Tensor | None:
        """Every row gets a token; parent: the row of its sentence that each continues, None for itself. Where the batch
        shrinks, the rows of sentences that are kept."""
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
        """Leave idle sentences behind, but for those that fill up the batch's next size."""
        K, device = self.config.hypotheses, self.score_nK.device
        order = sorted(range(len(self.sentences)), key=lambda row: self.sentences[row] not in self._busy)
        kept = sorted(order[: batch_size(len(self._busy))])
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
    """The sizes to which a batch shrinks: 1, 2, 3, 4, 6, 8, 12, 16, 24, …; the smallest that holds so many."""
    power = 1 << (num_sentences - 1).bit_length()
    return power * 3 // 4 if num_sentences <= power * 3 // 4 else power


def padded(sequences: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """One sequence a row, filled with padding."""
    longest = max(map(len, sequences))
    rows = [[*sequence, *[PAD] * (longest - len(sequence))] for sequence in sequences]
    return torch.tensor(rows, dtype=torch.long, device=device)
