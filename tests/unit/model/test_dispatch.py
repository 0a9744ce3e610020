"""Gather dispatch against the einsums of GShard's Algorithm 2."""

import pytest
import torch

from pipeline.model.config import MoEConfig
from pipeline.model.dispatch import Route, combine, dispatch
from pipeline.model.gating import top2_gating
from pipeline.model.initialization import initialize
from pipeline.model.moe import MoE


def by_einsum(x_GSM, gating, wi_EMH, wo_EHM):
    """Algorithm 2, with the one-hot masks written out."""
    combine_GSEC = gating.dense()
    mask_GSEC = (combine_GSEC > 0).to(x_GSM.dtype)
    dispatched_EGCM = torch.einsum("gsec,gsm->egcm", mask_GSEC, x_GSM)
    hidden_EGCH = torch.einsum("egcm,emh->egch", dispatched_EGCM, wi_EMH).relu()
    outputs_GECM = torch.einsum("egch,ehm->gecm", hidden_EGCH, wo_EHM)
    return torch.einsum("gsec,gecm->gsm", combine_GSEC, outputs_GECM)


@pytest.mark.parametrize("capacity", [3, 9, None])
def test_layer_equals_the_einsums_forward_and_backward(capacity):
    G, S, M, H, E = 3, 24, 8, 12, 4
    source = torch.Generator().manual_seed(5)
    x = torch.randn(G, S, M, generator=source).requires_grad_()
    wg = torch.randn(M, E, generator=source).requires_grad_()
    wi = torch.randn(E, M, H, generator=source).requires_grad_()
    wo = torch.randn(E, H, M, generator=source).requires_grad_()
    valid, rnd = torch.rand(G, S, generator=source) > 0.2, torch.rand(G, S, generator=source)
    goal = torch.randn(G, S, M, generator=source)
    gradients, outputs = [], []
    for formulation in ("einsum", "gather"):
        gating = top2_gating(x @ wg, capacity, valid_GS=valid, rnd_GS=rnd)
        if formulation == "einsum":
            y = by_einsum(x, gating, wi, wo)
        else:
            route = Route.of(gating, gating.capacity)
            slots = dispatch(x.reshape(G * S, M), route).view(E, -1, M)
            slots = torch.bmm(torch.bmm(slots, wi).relu(), wo).reshape(-1, M)
            y = combine(slots, gating.weight_GSK.view(G * S, 2), route).view(G, S, M)
        outputs.append(y)
        gradients.append(torch.autograd.grad((y * goal).sum() + gating.aux_loss, (x, wg, wi, wo)))
    torch.testing.assert_close(outputs[1], outputs[0], atol=1e-5, rtol=1e-5)  # float32 sums in another order
    for mine, reference in zip(gradients[1], gradients[0], strict=True):
        torch.testing.assert_close(mine, reference, atol=1e-4, rtol=1e-5)


def test_a_larger_agreed_capacity_changes_nothing():
    source = torch.Generator().manual_seed(2)
    layer = MoE(8, MoEConfig(num_experts=4, expert_dim=16))
    initialize(layer, 1)
    layer.eval()
    x, valid = torch.randn(1, 20, 8, generator=source), torch.ones(1, 20, dtype=torch.bool)
    alone, _ = layer(x, valid)
    layer.agree_on_capacity = lambda capacity: capacity + 7
    torch.testing.assert_close(layer(x, valid)[0], alone, atol=1e-6, rtol=1e-5)


def test_padding_changes_nothing_and_gets_nothing():
    source = torch.Generator().manual_seed(2)
    layer = MoE(8, MoEConfig(num_experts=4, expert_dim=16, capacity_factor=0.5))
    initialize(layer, 1)
    x, valid = torch.randn(1, 16, 8, generator=source), torch.ones(1, 16, dtype=torch.bool)
    valid[0, 10:] = False
    torch.manual_seed(1)
    one, _ = layer(x, valid)
    x2 = x.clone()
    x2[0, 10:] = 1e3
    torch.manual_seed(1)
    two, _ = layer(x2, valid)
    assert torch.equal(one[0, :10], two[0, :10])
    assert two[0, 10:].abs().sum() == 0


def test_capacity_is_the_fair_share_rounded_up():
    layer = MoE(8, MoEConfig(num_experts=8, expert_dim=4, capacity_factor=1.25))
    assert layer.capacity(100) == 32  # 1.25 · 2 · 100 / 8 = 31.25
    assert layer.capacity(1) == 1


def test_auxiliary_loss_reaches_the_router():
    layer = MoE(8, MoEConfig(num_experts=4, expert_dim=16))
    initialize(layer, 1)
    _, statistics = layer(torch.randn(2, 10, 8), torch.ones(2, 10, dtype=torch.bool))
    statistics.aux_loss.backward()
    assert layer.wg_ME.grad is not None
    assert float(layer.wg_ME.grad.abs().sum()) > 0
