"""The capacity of experts while decoding: it is off by default, and the choices that it drops are counted."""

import pytest
import torch

from pipeline.decode.search.search import DropCount, Request, search
from pipeline.model.moe.evaluation_capacity import evaluation_capacity
from pipeline.model.moe.layer import MoE
from pipeline.model.moe.tokens import Tokens
from tests.gates import GATES, gates_where, moe_of
from tests.unit.decode.search.plain_search import SOURCES, config, random_model

REQUESTS = [Request(source=source) for source in SOURCES]
QUEUES = gates_where(lambda gate: gate.queues)


def dropped(drops):
    return drops.asked - drops.kept


@pytest.mark.parametrize("gate", QUEUES)
def test_nothing_is_dropped_by_default_and_little_capacity_drops(gate):
    model = random_model(0, moe=moe_of(gate))
    counts = {}
    hypotheses = {}
    for factor in (0.0, 1e9, 0.5):
        counts[factor] = DropCount()
        hypotheses[factor] = search(model, REQUESTS, config(capacity_factor=factor), drops=counts[factor])
    assert counts[0.0].asked == 0
    assert str(counts[0.0]) == "0.0 % of 0 choices of experts dropped"
    assert hypotheses[1e9] == hypotheses[0.0]
    assert dropped(counts[1e9]) == 0 < counts[1e9].asked
    assert dropped(counts[0.5]) > 0.3 * counts[0.5].asked
    assert hypotheses[0.5] != hypotheses[0.0]
    assert search(model, REQUESTS, config()) == hypotheses[0.0]  # the capacity ends with the search that set it


def test_drops_of_one_layer_by_hand():
    """There are 8 real tokens, which choose one of 2 experts. With factor 0.5, C = ceil(0.5 · 8 / 2) = 2."""
    torch.manual_seed(0)
    layer = MoE(4, moe_of("top1", num_experts=2)).eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
        layer.router.wg_EM.copy_(torch.tensor([[1.0, 0, 0, 0], [-1.0, 0, 0, 0]]))
    x = torch.randn(1, 12, 4)
    x[0, :, 0] = torch.tensor([3.0, 3, 3, 3, 3, -3, -3, -3, 3, 3, 3, 3])  # five to one expert, three to the other
    valid = (torch.arange(12) < 8).unsqueeze(1)
    drops = DropCount()
    whole, _ = layer(x, Tokens.of_mask(valid))
    with evaluation_capacity(layer, 0.5, drops):
        cut, statistics = layer(x, Tokens.of_mask(valid))
    assert (drops.asked, drops.kept) == (8, 4) == (int(statistics.choices), int(statistics.kept))
    assert str(drops) == "50.0 % of 8 choices of experts dropped"
    served = [0, 1, 5, 6]
    torch.testing.assert_close(cut[0, served], whole[0, served])
    assert not cut[0, [2, 3, 4, 7]].any()
    assert torch.equal(layer(x, Tokens.of_mask(valid))[0], whole)


def test_priority_keeps_the_most_certain_tokens():
    """Four tokens choose one expert with room for one. The token with the largest gate stays."""
    torch.manual_seed(0)
    layer = MoE(4, moe_of("prioritized", num_experts=2)).eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
        layer.router.wg_EM.copy_(torch.tensor([[1.0, 0, 0, 0], [-1.0, 0, 0, 0]]))
    x = torch.randn(1, 4, 4)
    x[0, :, 0] = torch.tensor([1.0, 2, 4, 3])
    with evaluation_capacity(layer, 0.25, DropCount()):  # ceil(0.25 · 2 · 4 / 2)
        y, _ = layer(x, Tokens.of_mask(torch.ones(4, 1, dtype=torch.bool)))
    assert y[0].any(dim=1).tolist() == [False, False, True, False]


@pytest.mark.parametrize("gate", sorted({*GATES} - {*QUEUES}))
def test_gates_without_a_queue_refuse_a_capacity(gate):
    key = "encoder_gate=expert_choice" if gate == "expert_choice" else f"gate={gate}"
    with pytest.raises(ValueError, match=rf"capacity_factor=1.0: tokens do not queue .* model.moe.{key}, .* set it"):
        search(random_model(0, moe=moe_of(gate)), REQUESTS, config(capacity_factor=1.0))


def test_a_dense_model_has_nothing_to_drop():
    drops = DropCount()
    search(random_model(0, num_experts=0), REQUESTS, config(capacity_factor=1.0), drops=drops)
    assert drops.asked == 0
