"""Routing by task (Kudugunta et al., arXiv:2110.03742): hand numbers, and a loop for the losses."""

import pytest
import torch
from torch.nn import functional as F

from pipeline.model.initialization import initialize
from pipeline.model.moe.gates.task import task_gating
from pipeline.model.moe.gates.task_config import TaskConfig
from pipeline.model.moe.routers import TaskRouter
from pipeline.model.moe.tokens import Tokens
from tests.gates import PAIRS

PAIR_GS = torch.tensor([[0, 1, 2, 3, 0, 2]])


def router_of(**settings):
    router = TaskRouter(3, 5, TaskConfig(**settings).with_pairs(PAIRS, "gate"), with_z=False).double()
    initialize(router, 1)
    return router


def tokens_of(valid_GS):
    return Tokens(valid_GS=valid_GS, sentence_GS=PAIR_GS, pair_GS=PAIR_GS, num_pairs=len(PAIRS))


@pytest.mark.parametrize(
    ("by", "task_GS"),
    [("pair", [0, 1, 2, 3, 0, 2]), ("source", [0, 1, 2, 2, 0, 2]), ("target", [0, 0, 1, 2, 0, 1])],
)
def test_tokens_of_a_task_have_its_best_experts_whatever_they_are(by, task_GS):
    """The pairs are de-en, fr-en, en-de and en-fr."""
    router, tokens = router_of(by=by, k=2), tokens_of(torch.ones(1, 6, dtype=torch.bool))
    assert len(router.wt_TE) == max(task_GS) + 1
    decisions = [router(torch.randn(1, 6, 3).double(), tokens).decision for _ in range(2)]
    best = [sorted(range(5), key=lambda e, row=row: -row[e])[:2] for row in router.wt_TE.tolist()]
    assert decisions[0].expert_GSK.tolist() == decisions[1].expert_GSK.tolist() == [[best[task] for task in task_GS]]
    assert router.experts_of(PAIR_GS[0]).tolist() == decisions[0].expert_GSK[0].tolist()


def test_decoding_and_training_take_the_same_of_equal_gates():
    """The softmax of two logits can be equal where they are not. Then the first expert is taken."""
    router = router_of(k=1).float()
    with torch.no_grad():
        router.wt_TE.copy_(torch.tensor([0.0, -1e-9, 1e-9, -3.0, -3.0]).expand_as(router.wt_TE))
    decision = router(torch.zeros(1, 6, 3), tokens_of(torch.ones(1, 6, dtype=torch.bool))).decision
    assert router.experts_of(PAIR_GS[0]).tolist() == decision.expert_GSK[0].tolist() == [[0]] * 6


def test_a_weight_is_one_and_its_gradient_is_that_of_the_logarithm_of_the_gate():
    logits = torch.tensor([[[2.0, 0.5, 1.0], [0.0, 200.0, -800.0]]], dtype=torch.float64, requires_grad=True)
    gating = task_gating(logits, 2, valid_GS=torch.ones(1, 2, dtype=torch.bool))
    assert gating.expert_GSK.tolist() == [[[0, 2], [1, 0]]]
    assert torch.equal(gating.weight_GSK, torch.ones(1, 2, 2, dtype=torch.float64))
    (gradient,) = torch.autograd.grad(gating.weight_GSK[0, :, 1].sum(), logits)
    chosen = F.one_hot(torch.tensor([2, 0]), 3)
    torch.testing.assert_close(gradient[0], chosen - logits.detach()[0].softmax(-1))


def test_the_balance_loss_is_that_of_a_loop_over_tokens_without_padding():
    valid = torch.tensor([[True, True, True, True, False, True]])
    router = router_of(by="target")
    decision = router(torch.zeros(1, 6, 3).double(), tokens_of(valid)).decision
    load, mean = [0.0] * 5, [0.0] * 5
    for task in (0, 0, 1, 2, 1):  # the fifth token is padding
        gates = router.wt_TE[task].softmax(-1).tolist()
        load[gates.index(max(gates))] += 1 / 5
        mean = [m + gate / 5 for m, gate in zip(mean, gates, strict=True)]
    expected = sum(c * m for c, m in zip(load, mean, strict=True)) / 5
    assert decision.losses["balance"].item() == pytest.approx(expected, rel=1e-12)
    assert int(decision.kept) == 5


def test_a_run_whose_pairs_are_one_task_is_refused():
    into_english = ["de:en", "fr:en"]
    assert TaskConfig(by="source").with_pairs(into_english, "gate").tasks == ["de", "fr"]
    with pytest.raises(ValueError, match=r"model\.moe\.gate\.by=target makes one task of de:en, fr:en, so that 2 of"):
        TaskConfig(by="target", k=2).with_pairs(into_english, "model.moe.gate")
    with pytest.raises(ValueError, match=r"gate\.pairs=tr:en: a run fills in its own pairs; leave it out"):
        TaskConfig(pairs="tr:en").with_pairs(into_english, "model.moe.gate")
