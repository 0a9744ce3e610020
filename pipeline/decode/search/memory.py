"""Memory for the keys and values of the target tokens so far, which self-attention reads at every decoding step.

n sentences, K beam, B = n·K hypotheses, N heads, D head dim, L source length, T room for target tokens, S slots in use.

It is allocated once, for the longest output. Together with the keys and values of the sources it has
2 · layers · n · N · D · (L + K · T) numbers: a sentence's hypotheses share its source and have target tokens of their
own. The flattened beam adds a mask of n · K · K · T numbers. A CPU takes pages of memory only when they are written.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from pipeline.model.attention import MASKED
from pipeline.model.fused_attention import attend_few

CLOSE_UP = 8  # steps after which the flattened beam removes slots that no hypothesis sees


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes that a memory is allocated for. `length` is T, the most target tokens."""

    layers: int
    sentences: int
    beam: int
    length: int
    heads: int
    head_dim: int


class BeamMemory(Protocol):
    """Keys and values of the tokens so far, of every layer. All implementations give equal results."""

    def open(self) -> None:
        """Make room for the next token of every hypothesis."""

    def attend(self, layer: int, query_BND: Tensor, new_2BND: Tensor) -> Tensor:
        """Store the keys and values of the newest tokens, then return their self-attention [B, N, D]."""

    def reorder(self, parent_B: Tensor) -> None:
        """Let hypothesis b continue from hypothesis parent_B[b] of the same sentence."""

    def keep(self, sentence_n: Tensor) -> None:
        """Drop all sentences but these, and put them in this order."""

    @property
    def tensors(self) -> Sequence[Tensor]:
        """All tensors of the memory."""


class Reordered:
    """A memory with keys and values [2, B, N, T, D] of each hypothesis.

    When a hypothesis continues another one, the row of that one is copied.
    """

    def __init__(self, shape: Shape, *, dtype: torch.dtype, device: torch.device) -> None:
        self.beam, self.length = shape.beam, 0
        size = (2, shape.sentences * shape.beam, shape.heads, shape.length, shape.head_dim)
        self.past = [torch.empty(size, dtype=dtype, device=device) for _ in range(shape.layers)]

    def open(self) -> None:
        self.length += 1

    def attend(self, layer: int, query_BND: Tensor, new_2BND: Tensor) -> Tensor:
        past = self.past[layer][:, :, :, : self.length]
        past[:, :, :, -1] = new_2BND
        return attend_few(query_BND.unsqueeze(2), past[0], past[1], None).squeeze(2)

    def reorder(self, parent_B: Tensor) -> None:
        moved = (parent_B != torch.arange(len(parent_B), device=parent_B.device)).nonzero().squeeze(1)
        if len(moved):
            parent = parent_B[moved]
            for past in self.past:
                past[:, moved, :, : self.length] = past[:, parent, :, : self.length]

    def keep(self, sentence_n: Tensor) -> None:
        row_B = sentence_n.unsqueeze(1) * self.beam + torch.arange(self.beam, device=sentence_n.device)
        self.past = [keep_rows(past, row_B.flatten(), self.length) for past in self.past]

    @property
    def tensors(self) -> Sequence[Tensor]:
        return self.past


class Flattened:
    """GShard's flattened beam (arXiv:2006.16668, A.1): a sentence's K hypotheses are one sequence [2, n, N, T·K, D].

    Each step writes K slots. A mask [n, K, T·K] says which slots a hypothesis sees, and only the mask is reordered.
    In addition to the paper, slots that no hypothesis of a sentence sees are removed from time to time. They are most
    of the slots, because the hypotheses of a beam share all but their last tokens.
    """

    def __init__(self, shape: Shape, *, dtype: torch.dtype, device: torch.device) -> None:
        self.beam, self.used, self.steps = shape.beam, 0, 0
        slots = shape.length * shape.beam
        size = (2, shape.sentences, shape.heads, slots, shape.head_dim)
        self.past = [torch.empty(size, dtype=dtype, device=device) for _ in range(shape.layers)]
        self.mask_nKS = torch.empty(shape.sentences, shape.beam, slots, dtype=dtype, device=device)
        self.own_KK = torch.full((shape.beam, shape.beam), MASKED, dtype=dtype, device=device).fill_diagonal_(0.0)

    def open(self) -> None:
        if self.steps and self.steps % CLOSE_UP == 0 and self.beam > 1:
            self._close_up()
        self.mask_nKS[:, :, self.used : self.used + self.beam] = self.own_KK
        self.used += self.beam
        self.steps += 1

    def attend(self, layer: int, query_BND: Tensor, new_2BND: Tensor) -> Tensor:
        past = self.past[layer][:, :, :, : self.used]
        for index in range(2):  # keys, values
            past[index, :, :, -self.beam :] = by_sentence(new_2BND[index], self.beam)
        mask_n1KS = self.mask_nKS[:, :, : self.used].unsqueeze(1)
        return by_hypothesis(attend_few(by_sentence(query_BND, self.beam), past[0], past[1], mask_n1KS))

    def reorder(self, parent_B: Tensor) -> None:
        mask_BS = self.mask_nKS.flatten(0, 1)
        mask_BS[:, : self.used] = mask_BS[parent_B, : self.used]

    def keep(self, sentence_n: Tensor) -> None:
        self.past = [keep_rows(past, sentence_n, self.used) for past in self.past]
        self.mask_nKS[: len(sentence_n), :, : self.used] = self.mask_nKS[sentence_n, :, : self.used]
        self.mask_nKS = self.mask_nKS[: len(sentence_n)]

    def _close_up(self) -> None:
        """Remove slots that no hypothesis sees, and keep the order of the others.

        All sentences keep as many slots as the one that sees most. The slots too many stay masked.
        """
        mask_nKS = self.mask_nKS[:, :, : self.used]
        seen_nS = (mask_nKS == 0).any(dim=1)
        used = int(seen_nS.sum(dim=1).max())
        slot_nS = (~seen_nS).to(torch.int8).argsort(dim=1, stable=True)[:, :used]
        mask_nKS[:, :, :used] = mask_nKS.gather(2, slot_nS.unsqueeze(1).expand(-1, self.beam, -1))
        _, n, heads, slots, _ = self.past[0].shape
        first_nN1 = torch.arange(n * heads, device=slot_nS.device).view(n, heads, 1) * slots
        row_X = (first_nN1 + slot_nS.unsqueeze(1)).flatten()
        for past in self.past:
            for index in range(2):
                moved_XD = past[index].flatten(0, 2).index_select(0, row_X)
                past[index, :, :, :used] = moved_XD.view(n, heads, used, -1)
        self.used = used

    @property
    def tensors(self) -> Sequence[Tensor]:
        return [*self.past, self.mask_nKS, self.own_KK]


MEMORIES: dict[str, Callable[..., BeamMemory]] = {"flattened": Flattened, "reordered": Reordered}


def by_sentence(x_BND: Tensor, beam: int) -> Tensor:
    """Return a view [n, N, K, D] of a tensor with one row for each hypothesis."""
    return x_BND.view(-1, beam, *x_BND.shape[1:]).transpose(1, 2)


def by_hypothesis(x_nNKD: Tensor) -> Tensor:
    """Undo `by_sentence`: return [B, N, D]."""
    return x_nNKD.transpose(1, 2).flatten(0, 1)


def keep_rows(past: Tensor, rows: Tensor, used: int) -> Tensor:
    """Move rows of a memory to its beginning and return them. used: places of the fourth dimension to move."""
    moved = (rows != torch.arange(len(rows), device=rows.device)).nonzero().squeeze(1)
    if len(moved):
        past[:, moved, :, :used] = past[:, rows[moved], :, :used]
    return past[:, : len(rows)]
