"""Sums over micro-batches and over steps equal hand-computed values."""

import torch

from pipeline.batch.assembly import assemble
from pipeline.batch.config import GroupShape
from pipeline.train.measure import StepFlops
from pipeline.train.totals import Progress, pair_sums
from pipeline.vocab.symbols import EOS
from tests.unit.model.test_transformer import Pairs


def test_cross_entropy_by_pair_counts_real_target_tokens_alone():
    """Pair 1 has 2 sentences of 2 and 3 target tokens, pair 0 has one of 1, in 2 rows of 4 with 2 slots of padding."""
    data = [Pairs([([5, EOS], [EOS])]), Pairs([([5, EOS], [6, EOS]), ([5, EOS], [6, 7, EOS])])]
    batch = assemble([[(1, 0), (0, 0)], [(1, 1)]], GroupShape(rows=2, source=4, target=4), data)
    nll_BT = torch.tensor([[1.0, 2.0, 4.0, 0.0], [8.0, 16.0, 32.0, 0.0]])
    assert pair_sums(nll_BT, batch, 3).tolist() == [[4.0, 1.0], [59.0, 5.0], [0.0, 0.0]]


def test_progress_of_version_0_2_3_counted_nominal_flops_under_the_name_of_useful_ones():
    """A resumed run keeps its FLOPs per token, and counts served choices after the checkpoint."""
    now = Progress(step=3, target_tokens=30, useful_flops=8.0, nominal_flops=10.0, executed_flops=12.0)
    assert Progress.from_json(now.to_json()) == now
    before = {**now.to_json(), "useful_flops": 10.0}
    del before["nominal_flops"]
    resumed = Progress.from_json(before)
    resumed.add(10, 1.0, StepFlops(nominal=4.0, useful=3.0, executed=5.0))
    assert (resumed.nominal_flops, resumed.useful_flops, resumed.executed_flops) == (14.0, 13.0, 17.0)


def test_progress_adds_the_rows_that_augmentation_drew_and_keeps_them():
    """Without augmentation its state is that of older versions."""
    progress = Progress()
    assert "augmented" not in progress.to_json()
    for drawn in (5, 7):
        progress.count({"typos": {"drawn": drawn, "changed": 3, "too_long": 1}})
    assert progress.augmented == {"typos": {"drawn": 12, "changed": 6, "too_long": 2}}
    assert Progress.from_json(progress.to_json()) == progress
