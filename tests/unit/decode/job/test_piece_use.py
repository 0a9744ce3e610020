"""Counts of pieces by expert and quotes, against loops, on one process and on two."""

from collections import Counter

import pytest
import torch

from pipeline.batch.assembly import assemble
from pipeline.batch.config import GroupShape
from pipeline.decode.experts.specialisation import QUOTES_OF_A_PIECE
from pipeline.decode.job.piece_use import NEIGHBOURS, PieceUse, merged_pieces, save_pieces
from tests.unit.model.test_transformer import random_pairs

PAIRS, EXPERTS, CHOICES = ["de-en", "fr-en"], 3, 2
DATA = [random_pairs(5, seed=1), random_pairs(4, seed=2)]


def batch_of(rows):
    return assemble([[row] for row in rows], GroupShape(rows=len(rows), source=9, target=9), DATA)


def choices_of(batch, side, seed):
    """Random choices of a side's tokens: two different experts each, and every tenth second choice not wanted."""
    segments = batch.encoder_segments_BL if side == "encoder" else batch.decoder_segments_BT
    generator = torch.Generator().manual_seed(seed)
    scores_GSE = torch.rand(1, segments.numel(), EXPERTS, generator=generator)
    weight_GSK, expert_GSK = scores_GSE.topk(CHOICES)
    asked_GSK = (segments > 0).view(1, -1, 1).repeat(1, 1, CHOICES)
    asked_GSK[..., 1] &= torch.rand(1, segments.numel(), generator=generator) > 0.1
    return expert_GSK, asked_GSK, weight_GSK


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_counts_and_quotes_are_those_of_a_loop(side, tmp_path):
    batches = [batch_of([(0, 0), (1, 3), (0, 4)]), batch_of([(1, 0), (1, 1)])]
    expected, best = Counter(), {expert: [] for expert in range(EXPERTS)}
    uses = [PieceUse(side, EXPERTS, PAIRS) for _ in batches]  # as on two processes
    for number, (batch, use) in enumerate(zip(batches, uses, strict=True)):
        expert_GSK, asked_GSK, weight_GSK = choices_of(batch, side, number)
        use.add(batch, expert_GSK, asked_GSK, weight_GSK)
        pieces_BL = batch.encoder_tokens_BL if side == "encoder" else batch.decoder_input_tokens_BT
        segments_BL = batch.encoder_segments_BL if side == "encoder" else batch.decoder_segments_BT
        for row, line in enumerate(pieces_BL.tolist()):
            line = line[: int(segments_BL[row].sum())]
            for column, piece in enumerate(line):
                place = row * pieces_BL.shape[1] + column
                for k in range(CHOICES):
                    if asked_GSK[0, place, k]:
                        expert = int(expert_GSK[0, place, k])
                        expected[piece, expert] += k == 0
                        around = (
                            line[max(column - NEIGHBOURS, 0) : column],
                            piece,
                            line[column + 1 : column + 1 + NEIGHBOURS],
                        )
                        best[expert].append((float(weight_GSK[0, place, k]), *around))
    for rank, use in enumerate(uses):
        save_pieces(tmp_path, rank, {f"{side}.2": use})
    (cells, counts), quotes = merged_pieces(tmp_path, 2)[f"{side}.2"]
    counted = {divmod(cell, EXPERTS): count for cell, count in zip(cells.tolist(), counts.tolist(), strict=True)}
    assert counted == +expected
    assert not list(tmp_path.iterdir())
    for expert in range(EXPERTS):
        merged = sorted((quote.weight, quote.before, quote.piece, quote.after) for quote in quotes[expert])
        assert merged[-QUOTES_OF_A_PIECE:] == sorted(best[expert])[-QUOTES_OF_A_PIECE:]
    assert {quote.pair for of_expert in quotes for quote in of_expert} == {*PAIRS}


def test_a_gate_with_equal_weights_has_no_quotes():
    batch = batch_of([(0, 0), (1, 3)])
    use = PieceUse("encoder", EXPERTS, PAIRS, quote=False)
    use.add(batch, *choices_of(batch, "encoder", 1))
    assert sum(use.counts()[1]) == int((batch.encoder_segments_BL > 0).sum())
    assert not any(use.quotes)


def test_full_lists_take_what_is_heavier():
    """The pieces of a batch are added again and again with rising weights; the last ones stay."""
    batch = batch_of([(0, 0), (1, 3)])
    expert_GSK, asked_GSK, weight_GSK = choices_of(batch, "encoder", 1)
    use = PieceUse("encoder", EXPERTS, PAIRS)
    for scale in range(1, 200):
        use.add(batch, expert_GSK, asked_GSK, weight_GSK * scale)
    of_expert_0 = weight_GSK[asked_GSK & (expert_GSK == 0)]
    assert use.quotes[0][0].weight == pytest.approx(199 * float(of_expert_0.max()))
    assert [quote.weight for quote in use.quotes[0]] == sorted((q.weight for q in use.quotes[0]), reverse=True)
