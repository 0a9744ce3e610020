"""Groups become tensors."""

import numpy as np
import torch

from pipeline.batch.assembly import assemble
from pipeline.batch.config import GroupShape
from pipeline.vocab.symbols import EOS, PAD


class Two:
    def source(self, index):
        return [np.array([4, 10, EOS]), np.array([4, 11, 12, EOS])][index]

    def target(self, index):
        return [np.array([20, 21, EOS], dtype=np.uint16), np.array([22, EOS], dtype=np.uint16)][index]


def test_group_by_hand():
    shape = GroupShape(rows=2, source=9, target=6)
    batch = assemble([[(0, 0), (1, 1)]], shape, [Two(), Two()])
    assert batch.encoder_tokens_BL.tolist() == [[4, 10, EOS, 4, 11, 12, EOS, PAD, PAD], [PAD] * 9]
    assert batch.encoder_segments_BL.tolist() == [[1, 1, 1, 2, 2, 2, 2, 0, 0], [0] * 9]
    assert batch.encoder_positions_BL.tolist()[0] == [0, 1, 2, 0, 1, 2, 3, 0, 0]
    assert batch.decoder_input_tokens_BT.tolist()[0] == [EOS, 20, 21, EOS, 22, PAD]
    assert batch.decoder_target_tokens_BT.tolist()[0] == [20, 21, EOS, 22, EOS, PAD]
    assert batch.decoder_segments_BT.tolist()[0] == [1, 1, 1, 2, 2, 0]
    assert batch.pair_BL.tolist()[0] == [0, 0, 0, 1, 1, 1, 1, 0, 0]
    assert batch.num_pairs == 2
    assert batch.pair_BT.tolist()[0] == [0, 0, 0, 1, 1, 0]


def test_rows_begin_anew():
    shape = GroupShape(rows=3, source=8, target=6)
    batch = assemble([[(0, 1)], [(1, 0), (0, 0)]], shape, [Two(), Two()])
    assert batch.encoder_tokens_BL.tolist() == [
        [4, 11, 12, EOS, PAD, PAD, PAD, PAD],
        [4, 10, EOS, 4, 10, EOS, PAD, PAD],
        [PAD] * 8,
    ]
    assert batch.encoder_segments_BL.tolist()[1] == [1, 1, 1, 2, 2, 2, 0, 0]
    assert batch.decoder_input_tokens_BT.tolist()[1] == [EOS, 20, 21, EOS, 20, 21]
    assert batch.decoder_positions_BT.tolist()[1] == [0, 1, 2, 0, 1, 2]
    assert batch.pair_BT.tolist()[1] == [1, 1, 1, 0, 0, 0]


def test_an_empty_group_is_padding():
    batch = assemble([], GroupShape(rows=2, source=3, target=2), [Two()])
    assert batch.encoder_tokens_BL.tolist() == [[PAD] * 3] * 2
    assert batch.decoder_input_tokens_BT.tolist() == [[PAD] * 2] * 2
    assert not batch.decoder_segments_BT.any()
    assert batch.pair_BL.dtype == batch.decoder_target_tokens_BT.dtype == torch.int64
