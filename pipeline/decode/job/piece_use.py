"""Which pieces choose which experts, and the tokens to which each expert gives the largest weights.

G groups, S tokens of a group, K choices of a token, E experts, N choices, B rows, L tokens of a row.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.batch.batch import Batch

AROUND = 6  # pieces before and after a token that are kept with it
BEST_OF_BATCH, BEST = 16, 200  # tokens with the largest weights that are kept of each expert: of a batch, of a process
PARTS = ("cell", "count")
_MANY = 1 << 22  # cells that are counted together when there are so many

Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Quote:
    """A token and its neighbours in a development sentence, as ids of pieces.

    weight: combine weight of the expert that has this token.
    pair: name of its language pair.
    """

    weight: float
    pair: str
    before: list[int]
    piece: int
    after: list[int]


class PieceUse:
    """Counts and quotes of one MoE layer."""

    def __init__(self, side: str, num_experts: int, pairs: Sequence[str]) -> None:
        """side: encoder or decoder. pairs: names by index."""
        self.side, self.num_experts, self._pairs = side, num_experts, pairs
        self._cells: list[Ints] = []  # piece · (E + 1) + expert; expert E stands for the token itself
        self._counted: tuple[Ints, Ints] = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        self.quotes: list[list[Quote]] = [[] for _ in range(num_experts)]

    def add(self, batch: Batch, expert_GSK: Tensor, asked_GSK: Tensor, weight_GSK: Tensor) -> None:
        """Count the choices of a batch with one sentence in each row."""
        pieces_BL, valid_BL = self._tokens(batch)
        K = expert_GSK.shape[-1]
        piece_N = pieces_BL.reshape(-1, 1).expand(-1, K)[asked_GSK.view(-1, K)]
        cell_N = piece_N * (self.num_experts + 1) + expert_GSK[asked_GSK]
        cell_T = pieces_BL[valid_BL] * (self.num_experts + 1) + self.num_experts
        self._cells.append(torch.cat([cell_N, cell_T]).cpu().numpy())
        if sum(map(len, self._cells)) > _MANY:
            self.counts()
        self._quote(batch, expert_GSK, asked_GSK, weight_GSK)

    def counts(self) -> tuple[Ints, Ints]:
        """Return the cells that occur, in rising order, and how often.

        A cell is piece · (E + 1) + expert for a choice, and piece · (E + 1) + E for a token.
        """
        added = [(cell_N, np.ones(len(cell_N), np.int64)) for cell_N in self._cells]
        self._cells, self._counted = [], _added([self._counted, *added])
        return self._counted

    def _tokens(self, batch: Batch) -> tuple[Tensor, Tensor]:
        if self.side == "encoder":
            return batch.encoder_tokens_BL, batch.encoder_segments_BL > 0
        return batch.decoder_input_tokens_BT, batch.decoder_segments_BT > 0

    def _quote(self, batch: Batch, expert_GSK: Tensor, asked_GSK: Tensor, weight_GSK: Tensor) -> None:
        pieces_BL, valid_BL = self._tokens(batch)
        pair_BL = batch.pair_BL if self.side == "encoder" else batch.pair_BT
        length, K = pieces_BL.shape[1], expert_GSK.shape[-1]
        token_N, choice_N = asked_GSK.view(-1, K).nonzero(as_tuple=True)
        expert_N = expert_GSK.view(-1, K)[token_N, choice_N]
        weight_N = weight_GSK.view(-1, K)[token_N, choice_N]
        order_N = weight_N.argsort(descending=True, stable=True)
        order_N = order_N[expert_N[order_N].argsort(stable=True)]  # by expert, then by falling weight
        sizes_E = torch.bincount(expert_N, minlength=self.num_experts).tolist()
        for expert, of_expert in enumerate(torch.split(order_N, sizes_E)):
            best = of_expert[:BEST_OF_BATCH]
            for token, weight in zip(token_N[best].tolist(), weight_N[best].tolist(), strict=True):
                row, column = divmod(token, length)
                line = pieces_BL[row, : int(valid_BL[row].sum())].tolist()
                quote = Quote(
                    weight=round(weight, 4),
                    pair=self._pairs[int(pair_BL[row, column])],
                    before=line[max(column - AROUND, 0) : column],
                    piece=line[column],
                    after=line[column + 1 : column + 1 + AROUND],
                )
                self.quotes[expert].append(quote)
            if len(best):
                self.quotes[expert] = sorted(self.quotes[expert], key=lambda quote: -quote.weight)[:BEST]


def save_pieces(out: Path, rank: int, layers: Mapping[str, PieceUse]) -> None:
    """Write what one process has of each layer, for `merged_pieces`."""
    arrays = {
        f"{name} {part}": array for name, use in layers.items() for part, array in zip(PARTS, use.counts(), strict=True)
    }
    np.savez_compressed(out / f"pieces.rank-{rank}.npz", allow_pickle=False, **arrays)
    quotes = {
        name: [[asdict(quote) for quote in of_expert] for of_expert in use.quotes] for name, use in layers.items()
    }
    (out / f"quotes.rank-{rank}.json").write_text(json.dumps(quotes), encoding="utf-8")


def merged_pieces(out: Path, processes: int) -> dict[str, tuple[tuple[Ints, Ints], list[list[Quote]]]]:
    """Return by layer what `PieceUse.counts` returns for all processes together, and the quotes of each expert.

    Removes the files of the processes.
    """
    tables, quotes = [], []
    for rank in range(processes):
        counted, quoted = out / f"pieces.rank-{rank}.npz", out / f"quotes.rank-{rank}.json"
        with np.load(counted) as file:
            tables.append({name: file[name] for name in file.files})
        quotes.append(json.loads(quoted.read_text(encoding="utf-8")))
        counted.unlink()
        quoted.unlink()
    merged = {}
    for name, experts in quotes[0].items():
        counts = _added([(table[f"{name} {PARTS[0]}"], table[f"{name} {PARTS[1]}"]) for table in tables])
        of_experts = [[Quote(**quote) for part in quotes for quote in part[name][e]] for e in range(len(experts))]
        merged[name] = (counts, of_experts)
    return merged


def _added(counts: Sequence[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    """Return the cells of several counts in rising order, and how often they occur together."""
    cell_N, count_N = (np.concatenate(parts) for parts in zip(*counts, strict=True))
    cells, places = np.unique(cell_N, return_inverse=True)
    return cells, np.bincount(places, weights=count_N, minlength=len(cells)).astype(np.int64)
