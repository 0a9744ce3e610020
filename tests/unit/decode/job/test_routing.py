"""Records of the decisions of every gate."""

import numpy as np
import pytest
import torch

from pipeline.batch.assembly import assemble
from pipeline.batch.config import GroupShape
from pipeline.decode.job.routing import MEASURES, Recorder, choices, in_order
from pipeline.model.moe.gates.expert_choice import Selection
from tests.gates import GATES, moe_of
from tests.unit.model.test_transformer import built, random_pairs, small


@pytest.mark.parametrize("gate", sorted(GATES))
def test_choices_are_those_that_the_layer_counts(gate):
    model = built(small(moe=moe_of(gate))).eval()
    data = [random_pairs(5, seed=1), random_pairs(4, seed=2)]
    rows = [[(0, index)] for index in range(5)] + [[(1, index)] for index in range(4)]
    batch = assemble(rows, GroupShape(rows=9, source=9, target=9), data)
    with Recorder(model, ["de-en", "fr-en"]) as recorder, torch.inference_mode():
        recorder.batch = batch
        output = model(batch, label_smoothing=0.0)
    for name, statistics in zip(model.moe_layers(), output.statistics, strict=True):
        chosen_PE, weight_PE, first_PE, first_weight_PE = recorder.sums[name].unbind(dim=1)
        assert torch.equal(chosen_PE.long(), statistics.usage_PE)
        assert (recorder.tokens[name].sum(), first_PE.sum()) == (
            statistics.tokens,
            statistics.tokens - statistics.unserved,
        )
        assert (first_weight_PE <= weight_PE).all()
        cells, counts = recorder.pieces[name].counts()
        by_expert = np.bincount(cells % model.config.moe.num_experts, weights=counts, minlength=first_PE.shape[1])
        assert by_expert.tolist() == first_PE.sum(dim=0).tolist()
        assert any(recorder.pieces[name].quotes) == (gate != "task")
    assert set(recorder.to_json(["de-en", "fr-en"])[name]["fr-en"]) == {"tokens", *MEASURES}


def test_pairs_have_the_numbers_that_they_had_in_training():
    by_name = ["de-en", "en-de", "en-fr", "fr-en"]
    assert in_order(by_name, built(small(moe=moe_of("task")))) == ["de-en", "fr-en", "en-de", "en-fr"]
    assert in_order(by_name, built(small())) == by_name


def test_experts_that_choose_are_sorted_by_token_by_hand():
    """There are two tokens and a padding. Expert 0 takes token 1 (0.2), expert 2 takes tokens 0 (0.0) and 1 (0.7)."""
    decision = Selection(
        token_X=torch.tensor([1, 0, 0, 1]),
        filled_X=torch.tensor([True, False, True, True]),
        weight_X=torch.tensor([0.2, 0.0, 0.0, 0.7]),
        expert_X=torch.tensor([0, 0, 2, 2]),
        valid_GS=torch.tensor([[True, True, False]]),
        capacity=None,
        num_experts=3,
        losses={},
    )
    expert_GSK, asked_GSK, weight_GSK = choices(decision)
    assert asked_GSK.tolist() == [[[True, False, False], [True, True, False], [False, False, False]]]
    assert expert_GSK[0, 0, 0] == 2
    assert expert_GSK[0, 1, :2].tolist() == [2, 0]
    assert weight_GSK[asked_GSK].tolist() == pytest.approx([0.0, 0.7, 0.2])
