"""Several models with one vocabulary that translate together: after each step their probabilities are averaged.

n sentences, K hypotheses of each, B = n·K, L source length, V vocabulary.
"""

import math
from collections.abc import Sequence
from functools import reduce
from typing import Literal, cast

import torch
from torch import Tensor, nn

from pipeline.decode.search.incremental import DecoderState
from pipeline.model.precision import at_least_float32
from pipeline.model.transformer import Transformer

Mean = Literal["linear", "log_linear"]


class Ensemble(nn.Module):
    """Models with one vocabulary and one precision. Their sizes may differ.

    mean: of the probabilities (linear), or of their logarithms (log_linear).
    """

    def __init__(self, members: Sequence[Transformer], mean: Mean) -> None:
        super().__init__()
        self.members, self.mean = nn.ModuleList(members), mean

    @property
    def target_embedding_VM(self) -> Tensor:
        """The first model's, whose device, type and number of tokens are those of all."""
        return members_of(self)[0].target_embedding_VM

    def reach(self, length: int) -> None:
        """Make room for positions up to a length, as `Transformer.reach` does."""
        for member in members_of(self):
            member.reach(length)


def members_of(model: Transformer | Ensemble) -> list[Transformer]:
    """Return the models of an ensemble, or the one model."""
    return cast(list[Transformer], list(model.members)) if isinstance(model, Ensemble) else [model]


class EnsembleState:
    """The states of the models of an ensemble for one batch, with the methods of `DecoderState`."""

    def __init__(self, states: Sequence[DecoderState], mean: Mean) -> None:
        self.states, self.mean = states, mean

    @property
    def attention_BL(self) -> Tensor:
        """The mean of the models' cross-attention."""
        return torch.stack([state.attention_BL for state in self.states]).mean(dim=0)

    def step(self, tokens_B: Tensor, live_B: Tensor | None = None) -> Tensor:
        """Append one token to every hypothesis. Return logarithms [B, V] of the mean, which take the place of logits.

        The mean of logarithms is that of probabilities that do not add up to 1, so the caller normalises it.
        """
        logs = [at_least_float32(state.step(tokens_B, live_B)).log_softmax(dim=-1) for state in self.states]
        if self.mean == "linear":
            return reduce(torch.logaddexp, logs) - math.log(len(logs))
        return sum(logs[1:], logs[0]) / len(logs)

    def reorder(self, parent_B: Tensor) -> None:
        """Let hypothesis b continue from hypothesis parent_B[b] of the same sentence."""
        for state in self.states:
            state.reorder(parent_B)

    def keep(self, sentence_n: Tensor) -> None:
        """Drop all sentences but these."""
        for state in self.states:
            state.keep(sentence_n)
