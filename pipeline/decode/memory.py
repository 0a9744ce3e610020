"""Keys and values that attention of one decoding step reads: of a batch's sources, and of the tokens so far.

n sentences, K beam, B = n·K hypotheses, N heads, D head dim, L source length, T room for target tokens, S slots
in use.
All of it is allocated once, for the longest output: 2 · layers · n · N · D · (L + K · T) numbers. That is the
arithmetic of a cache in which every hypothesis has keys and values of its own and a sentence's hypotheses share its
source; the flattened beam adds a mask of n · K · K · T numbers, a part K / (2 · layers · N · D) of it. A CPU's pages
are not there until they are written.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from pipeline.model.attention import MASKED
from pipeline.model.fused_attention import attend_few

CLOSE_UP = 8  # steps after which the flattened beam looks for slots that nobody sees


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a memory is allocated for; `length` is T."""

    layers: int
    sentences: int
    beam: int
    length: int
    heads: int
    head_dim: int


class BeamMemory(Protocol):
    """Keys and values of the tokens so far, of every layer. Equal results, whatever the implementation."""

    def open(self) -> None:
        """Make room for the next token of every hypothesis."""

    def attend(self, layer: int, query_BND: Tensor, new_2BND: Tensor) -> Tensor:
        """Self-attention [B, N, D] of the newest tokens, whose keys and values are put in first."""

    def reorder(self, parent_B: Tensor) -> None:
        """Hypothesis b continues what hypothesis parent_B[b] of the same sentence was."""

    def keep(self, sentence_n: Tensor) -> None:
        """Go on with these sentences alone, in this order."""

    @property
    def tensors(self) -> Sequence[Tensor]:
        """All that it holds."""


class Reordered:
    """Each hypothesis has its own keys and values [2, B, N, T, D], which are copied to whoever continues it: only the
    rows whose parent is another one."""

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
    """GShard's (arXiv:2006.16668, A.1): a sentence's K hypotheses are one sequence. Step t writes K slots of
    [2, n, N, T·K, D], and a mask [n, K, T·K] that says which slots a hypothesis sees is all that is reordered.

    Ours: now and then slots that no hypothesis of a sentence sees any more are left out, which are most of them, since
    hypotheses of a beam share all but their last tokens.
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
        for which in range(2):  # keys, values
            past[which, :, :, -self.beam :] = by_sentence(new_2BND[which], self.beam)
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
        """Move the slots that are seen together, in their order; a sentence with fewer of them than another one keeps
        some that are not, which stay masked."""
        mask_nKS = self.mask_nKS[:, :, : self.used]
        seen_nS = (mask_nKS == 0).any(dim=1)
        left = int(seen_nS.sum(dim=1).max())
        slot_nS = (~seen_nS).to(torch.int8).argsort(dim=1, stable=True)[:, :left]
        mask_nKS[:, :, :left] = mask_nKS.gather(2, slot_nS.unsqueeze(1).expand(-1, self.beam, -1))
        _, n, heads, slots, _ = self.past[0].shape
        first_nN1 = torch.arange(n * heads, device=slot_nS.device).view(n, heads, 1) * slots
        row_X = (first_nN1 + slot_nS.unsqueeze(1)).flatten()
        for past in self.past:
            for which in range(2):
                moved_XD = past[which].flatten(0, 2).index_select(0, row_X)
                past[which, :, :, :left] = moved_XD.view(n, heads, left, -1)
        self.used = left

    @property
    def tensors(self) -> Sequence[Tensor]:
        return [*self.past, self.mask_nKS, self.own_KK]


MEMORIES: dict[str, Callable[..., BeamMemory]] = {"flattened": Flattened, "reordered": Reordered}


def by_sentence(x_BND: Tensor, beam: int) -> Tensor:
    """A view [n, N, K, D]."""
    return x_BND.view(-1, beam, *x_BND.shape[1:]).transpose(1, 2)


def by_hypothesis(x_nNKD: Tensor) -> Tensor:
    """The inverse [B, N, D] of `by_sentence`."""
    return x_nNKD.transpose(1, 2).flatten(0, 1)


def keep_rows(past: Tensor, rows: Tensor, used: int) -> Tensor:
    """The rows [2, rows, N, :used, D] of a memory, moved to its beginning."""
    past[:, : len(rows), :, :used] = past[:, rows, :, :used]
    return past[:, : len(rows)]
