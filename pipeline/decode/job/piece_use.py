"""Counts of the pieces whose tokens choose each expert first, and the tokens to which it gives the largest weights.

G groups, S tokens of a group, K choices of a token, E experts, N choices, B rows, L tokens of a row.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.batch.batch import Batch
from pipeline.decode.experts.specialisation import QUOTES, Quote, best_quotes

NEIGHBOURS = 6  # pieces before and after a token that are kept with it
BEST_OF_BATCH = 16  # tokens of an expert in a batch that may be quoted
PARTS = ("cell", "count")
_MOST_WAITING = 1 << 22  # choices that are kept one by one, to bound the memory

Ints = NDArray[np.int64]


class PieceUse:
    """Counts and quotes of one MoE layer."""

    def __init__(self, side: str, num_experts: int, pairs: Sequence[str], *, quote: bool = True) -> None:
        """side: encoder or decoder. pairs: names by index. quote: False where the weights of a gate are all equal."""
        self.side, self.num_experts, self._pairs, self._quotes_any = side, num_experts, pairs, quote
        self._waiting: list[Ints] = []  # cells: piece · E + expert
        self._counted: tuple[Ints, Ints] = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        self.quotes: list[list[Quote]] = [[] for _ in range(num_experts)]

    def add(self, batch: Batch, expert_GSK: Tensor, asked_GSK: Tensor, weight_GSK: Tensor) -> None:
        """Count the choices of a batch with one sentence in each row. All tensors are on the CPU."""
        pieces_BL, _ = self._tokens(batch)
        has_expert_T = asked_GSK[..., 0].flatten()
        cell_N = pieces_BL.flatten()[has_expert_T] * self.num_experts + expert_GSK[..., 0].flatten()[has_expert_T]
        self._waiting.append(cell_N.numpy())
        if sum(map(len, self._waiting)) > _MOST_WAITING:
            self.counts()
        if self._quotes_any:
            self._quote(batch, expert_GSK, asked_GSK, weight_GSK)

    def counts(self) -> tuple[Ints, Ints]:
        """Return the cells that occur, piece · E + expert of a first choice, in rising order, and how often."""
        added = [(cell_N, np.ones(len(cell_N), np.int64)) for cell_N in self._waiting]
        self._waiting, self._counted = [], _added([self._counted, *added])
        return self._counted

    def _tokens(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the pieces [B, L] of the side, and the number of real ones in each row [B]."""
        if self.side == "encoder":
            return batch.encoder_tokens_BL, (batch.encoder_segments_BL > 0).sum(dim=1)
        return batch.decoder_input_tokens_BT, (batch.decoder_segments_BT > 0).sum(dim=1)

    def _quote(self, batch: Batch, expert_GSK: Tensor, asked_GSK: Tensor, weight_GSK: Tensor) -> None:
        pieces_BL, length_B = self._tokens(batch)
        pair_BL = batch.pair_BL if self.side == "encoder" else batch.pair_BT
        columns, K = pieces_BL.shape[1], expert_GSK.shape[-1]
        token_N, choice_N = asked_GSK.view(-1, K).nonzero(as_tuple=True)
        expert_N = expert_GSK.view(-1, K)[token_N, choice_N]
        weight_N = weight_GSK.view(-1, K)[token_N, choice_N]
        order_N = weight_N.argsort(descending=True, stable=True)
        order_N = order_N[expert_N[order_N].argsort(stable=True)]  # by expert, then by falling weight
        sizes_E = torch.bincount(expert_N, minlength=self.num_experts).tolist()
        for expert, of_expert in enumerate(torch.split(order_N, sizes_E)):
            best_N, new = of_expert[:BEST_OF_BATCH], []
            if len(self.quotes[expert]) == QUOTES:  # full: the lightest one must be reached
                best_N = best_N[weight_N[best_N] >= self.quotes[expert][-1].weight]
            for token, weight in zip(token_N[best_N].tolist(), weight_N[best_N].tolist(), strict=True):
                row, column = divmod(token, columns)
                line = pieces_BL[row, : int(length_B[row])].tolist()
                quote = Quote(
                    weight=weight,
                    pair=self._pairs[int(pair_BL[row, column])],
                    before=line[max(column - NEIGHBOURS, 0) : column],
                    piece=line[column],
                    after=line[column + 1 : column + 1 + NEIGHBOURS],
                )
                new.append(quote)
            if new:
                self.quotes[expert] = best_quotes([*self.quotes[expert], *new])


def save_pieces(out: Path, rank: int, layers: Mapping[str, PieceUse]) -> None:
    """Write what one process has of each layer, for `merged_pieces`."""
    arrays = {
        f"{name} {part}": array for name, use in layers.items() for part, array in zip(PARTS, use.counts(), strict=True)
    }
    np.savez_compressed(out / f"pieces.rank-{rank}.npz", allow_pickle=False, **arrays)
    quotes = {name: [[*map(asdict, of_expert)] for of_expert in use.quotes] for name, use in layers.items()}
    (out / f"quotes.rank-{rank}.json").write_text(json.dumps(quotes), encoding="utf-8")


def merged_pieces(out: Path, processes: int) -> dict[str, tuple[tuple[Ints, Ints], list[list[Quote]]]]:
    """Return by layer what `PieceUse.counts` returns for all processes together, and the best quotes of each expert.

    Removes the files of the processes.
    """
    merged: dict[str, tuple[tuple[Ints, Ints], list[list[Quote]]]] = {}
    for rank in range(processes):
        counted, quoted = out / f"pieces.rank-{rank}.npz", out / f"quotes.rank-{rank}.json"
        layers = json.loads(quoted.read_text(encoding="utf-8"))
        with np.load(counted) as tables:
            for name, experts in layers.items():
                new_counts = tables[f"{name} {PARTS[0]}"], tables[f"{name} {PARTS[1]}"]
                new_quotes = [[Quote(**quote) for quote in of_expert] for of_expert in experts]
                if name in merged:
                    counts, quotes = merged[name]
                    new_counts = _added([counts, new_counts])
                    new_quotes = [best_quotes([*old, *new]) for old, new in zip(quotes, new_quotes, strict=True)]
                merged[name] = new_counts, new_quotes
        counted.unlink()
        quoted.unlink()
    return merged


def _added(counts: Sequence[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    """Return the cells of several counts in rising order, and how often they occur together."""
    cell_N, count_N = (np.concatenate(parts) for parts in zip(*counts, strict=True))
    cells, places = np.unique(cell_N, return_inverse=True)
    return cells, np.bincount(places, weights=count_N, minlength=len(cells)).astype(np.int64)
