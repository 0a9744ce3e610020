"""The MoE layer under every gate that ships: both dispatch formulations, padding, evaluation, losses, statistics."""

import math
from dataclasses import replace

import pytest
import torch

from pipeline.model.config import ConditionalConfig, MoEConfig
from pipeline.model.initialization import initialize
from pipeline.model.moe import router_chunks
from pipeline.model.moe.gates.capacity import capacity_of
from pipeline.model.moe.gates.config import Top2Config
from pipeline.model.moe.layer import MoE
from pipeline.model.moe.tokens import Tokens
from tests.gates import GATES, gates_where, moe_of

M = 8


def layer_of(config, *, decoder=False, noisy_weights=True):
    """Build a layer whose router has random weights, also those that start at zero, so that routes differ by token."""
    layer = MoE(M, config, decoder=decoder, ffn_dim=12)
    initialize(layer, 1)
    if noisy_weights:
        source = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for name, parameter in layer.router.named_parameters():
                if name != "threshold_E":
                    parameter.normal_(0.0, 0.5, generator=source)
    return layer


def trained(module):
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def tokens_of(valid_GS, pair_GS=None, num_pairs=1):
    sentence_GS = torch.zeros_like(valid_GS, dtype=torch.long)
    pair_GS = sentence_GS if pair_GS is None else pair_GS
    return Tokens(valid_GS=valid_GS, sentence_GS=sentence_GS, pair_GS=pair_GS, num_pairs=num_pairs)


def some_tokens(G, S, seed=2, padding=0.2):
    source = torch.Generator().manual_seed(seed)
    return torch.randn(G, S, M, generator=source), torch.rand(G, S, generator=source) >= padding


@pytest.mark.parametrize("gate", GATES)
def test_gather_equals_the_einsums_of_algorithm_2(gate):
    """Outputs and gradients agree. In float64 only the order of sums differs."""
    x, valid = some_tokens(3, 24)
    results = []
    for dispatch in ("einsum", "gather"):
        layer = layer_of(moe_of(gate, dispatch=dispatch)).double()
        inputs = x.double().requires_grad_()
        torch.manual_seed(1)
        y, statistics = layer(inputs, tokens_of(valid))
        goal = torch.randn(y.shape, generator=torch.Generator().manual_seed(9), dtype=y.dtype)
        loss = (y * goal).sum() + statistics.loss
        gradients = torch.autograd.grad(loss, [inputs, *trained(layer)], allow_unused=True)
        results.append((y, gradients))
    torch.testing.assert_close(results[1][0], results[0][0], atol=1e-12, rtol=1e-12)
    for gradient, reference in zip(results[1][1], results[0][1], strict=True):
        assert (gradient is None) == (reference is None)
        if gradient is not None:
            torch.testing.assert_close(gradient, reference, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("gate", GATES)
def test_padding_changes_nothing_and_gets_nothing(gate, training):
    layer = layer_of(moe_of(gate)).train(training)
    x, valid = some_tokens(1, 16, padding=0.0)
    valid[0, 10:] = False
    outputs = []
    for padding in (0.0, 1e3):
        x[0, 10:] = padding
        torch.manual_seed(1)
        y, statistics = layer(x, tokens_of(valid))
        outputs.append((y, float(statistics.loss.detach()), statistics.usage_PE.tolist(), float(statistics.entropy)))
    assert torch.equal(outputs[0][0][0, :10], outputs[1][0][0, :10])
    assert outputs[1][0][0, 10:].abs().sum() == 0
    assert outputs[0][1:] == outputs[1][1:]


@pytest.mark.parametrize("gate", GATES)
def test_evaluation_draws_and_drops_nothing(gate):
    layer = layer_of(moe_of(gate)).eval()
    x, valid = some_tokens(2, 40)
    state = torch.get_rng_state()
    y, statistics = layer(x, tokens_of(valid))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(layer(x, tokens_of(valid))[0], y)
    assert int(statistics.choices) == int(statistics.kept)


@pytest.mark.parametrize("gate", GATES)
def test_a_group_is_routed_alike_alone_and_beside_others(gate):
    layer = layer_of(moe_of(gate)).eval()
    x, valid = some_tokens(3, 20)
    together, _ = layer(x, tokens_of(valid))
    for group in range(3):
        alone, _ = layer(x[group : group + 1], tokens_of(valid[group : group + 1]))
        torch.testing.assert_close(together[group : group + 1], alone, atol=1e-6, rtol=1e-5)  # float32 matmuls


@pytest.mark.parametrize("gate", [gate for gate in GATES if gate not in ("expert_choice", "sigmoid", "node_limited")])
def test_auxiliary_losses_reach_every_parameter_of_the_router(gate):
    layer = layer_of(moe_of(gate), decoder=True, noisy_weights=False)
    x, valid = some_tokens(2, 30)
    torch.manual_seed(4)
    _, statistics = layer(x, tokens_of(valid))
    statistics.loss.backward()
    for name, parameter in layer.router.named_parameters():
        assert parameter.grad is not None, name
        assert float(parameter.grad.abs().max()) > 0, name


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("gate", gates_where(lambda gate: hasattr(gate, "normalize")))
def test_outputs_train_the_router_of_one_choice_where_its_weight_is_the_gate(gate, normalize):
    """A weight that is always 1 has no gradient (arXiv:1701.06538, section 2.1, chooses k > 1 for it)."""
    layer = layer_of(replace(moe_of(gate), gate=replace(moe_of(gate).gate, k=1, normalize=normalize)))
    x, valid = some_tokens(2, 24)
    (gradient,) = torch.autograd.grad(layer(x, tokens_of(valid))[0].square().sum(), [layer.router.wg_EM])
    assert bool(gradient.abs().max() > 1e-3) != normalize


@pytest.mark.parametrize("gate", GATES)
def test_router_is_float32_under_autocast(gate):
    layer = layer_of(moe_of(gate))
    x, valid = some_tokens(1, 12)
    calls = []
    layer.router.register_forward_hook(lambda module, inputs, output: calls.append((inputs[0], output)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        layer(x.bfloat16(), tokens_of(valid))
    inputs, routing = calls[0]
    assert {inputs.dtype, routing.decision.weights.dtype} == {torch.float32}


@pytest.mark.parametrize("gate", GATES)
def test_an_empty_group_gives_zeros_and_finite_gradients(gate):
    layer = layer_of(moe_of(gate, z_weight=0.1, conditional={}, output_masking=0.2))
    x, valid = some_tokens(2, 12)
    valid[1] = False
    y, statistics = layer(x.requires_grad_(), tokens_of(valid))
    (y[0].sum() + statistics.loss).backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in layer.parameters())
    assert bool(x.grad.isfinite().all())


def test_usage_counts_choices_by_pair_and_expert():
    layer = layer_of(moe_of("dropless"))
    x, valid = some_tokens(2, 30)
    pairs = (torch.arange(30) % 3).expand(2, 30)
    _, statistics = layer(x, tokens_of(valid, pairs, num_pairs=3))
    expected = torch.zeros(3, 4, dtype=torch.long)
    best = (x @ layer.router.wg_EM.T).topk(2).indices
    for group in range(2):
        for token in range(30):
            if valid[group, token]:
                expected[token % 3, best[group, token]] += 1
    assert torch.equal(statistics.usage_PE, expected)
    assert int(statistics.tokens) == int(valid.sum())


def test_drop_rate_counts_choices_past_capacity():
    config = MoEConfig(num_experts=4, expert_dim=16, gate=Top2Config(capacity_factor=0.25, second="all"))
    layer = layer_of(config)
    x, valid = some_tokens(1, 32, padding=0.0)
    _, statistics = layer(x, tokens_of(valid))
    assert int(statistics.choices) == 64
    assert int(statistics.kept) <= 4 * capacity_of(0.25, 2, 32, 4)
    assert int(statistics.unserved) >= 32 - int(statistics.kept)


def test_not_finite_logits_are_counted():
    layer = layer_of(moe_of("top2"))
    x, valid = some_tokens(1, 8, padding=0.0)
    x[0, 3, 0] = math.nan
    assert int(layer(x, tokens_of(valid))[1].not_finite) == 4


def test_capacity_is_the_fair_share_rounded_up():
    assert capacity_of(1.25, 2, 100, 8) == 32  # 1.25 · 2 · 100 / 8 = 31.25
    assert capacity_of(1.0, 2, 1, 8) == 1
    assert capacity_of(1.1, 2, 100, 10) == 22  # 1.1 as a float is a little more, and would give 23


def test_masked_outputs_keep_the_expectation():
    """The mean over many masks of EOM is the unmasked output (four standard errors). Evaluation is not masked."""
    masked, plain = layer_of(moe_of("dropless", output_masking=0.3)), layer_of(moe_of("dropless"))
    x, valid = some_tokens(1, 6, padding=0.0)
    torch.manual_seed(1)
    draws = masked(x.repeat(1, 4000, 1), tokens_of(valid.repeat(1, 4000)))[0].view(4000, 6, M)
    expected, _ = plain(x, tokens_of(valid))
    error = 4 * draws.std(dim=0) / len(draws) ** 0.5
    assert bool(((draws.mean(dim=0) - expected[0]).abs() <= error + 1e-6).all())
    torch.testing.assert_close(masked.eval()(x, tokens_of(valid))[0], plain.eval()(x, tokens_of(valid))[0])


def test_masking_hits_each_expert_output_alone():
    """With two experts a token and masks of 0.3, two experts stay with 0.49, one with 0.42 and none with 0.09."""
    layer = layer_of(moe_of("dropless", output_masking=0.3))
    x, valid = some_tokens(1, 20000, padding=0.0)
    plain, _ = layer.eval()(x, tokens_of(valid))
    torch.manual_seed(1)
    y, _ = layer.train()(x, tokens_of(valid))
    share_of_none = (y.abs().sum(-1) == 0).double().mean()
    assert float(share_of_none) == pytest.approx(0.09, abs=4 * math.sqrt(0.09 * 0.91 / 20000))
    share_of_both = torch.isclose(y * 0.7, plain, atol=1e-6).all(-1).double().mean()
    assert float(share_of_both) == pytest.approx(0.49, abs=4 * math.sqrt(0.49 * 0.51 / 20000))


def test_conditional_routing_by_hand():
    """The formulas of CMR hold: y = (1 - g) · FFN(x) + g · MoE(x), g = sigmoid(w · x), budget loss = mean |g - p|."""
    budget = ConditionalConfig(budget=0.8, weight=0.5)
    config = MoEConfig(num_experts=4, expert_dim=16, gate=Top2Config(balance_weight=0.0), conditional=budget)
    layer, plain = layer_of(config).eval(), layer_of(MoEConfig(num_experts=4, expert_dim=16)).eval()
    with torch.no_grad():
        layer.conditional.wc_M.normal_(generator=torch.Generator().manual_seed(5))
    x, valid = some_tokens(2, 10)
    y, statistics = layer(x, tokens_of(valid))
    gate = torch.sigmoid(x @ layer.conditional.wc_M)
    shared = (x @ layer.conditional.shared.wi_MH).relu() @ layer.conditional.shared.wo_HM
    expected = (1 - gate).unsqueeze(-1) * shared + gate.unsqueeze(-1) * plain(x, tokens_of(valid))[0]
    torch.testing.assert_close(y, expected, atol=1e-6, rtol=1e-5)
    means = [(gate[g][valid[g]] - 0.8).abs().mean() for g in range(2)]
    torch.testing.assert_close(statistics.loss, 0.5 * sum(means))


@pytest.mark.parametrize("dispatch", ["gather", "einsum"])
def test_shared_experts_by_hand(dispatch):
    """Each shared expert is a network of its own size that serves every token. Their outputs are added without weights.

    The gate's decisions and losses are those without shared experts. The gate of CMR weighs both kinds together.
    """
    x, valid = some_tokens(2, 10, padding=0.0)
    plain, statistics_without = layer_of(moe_of("topk", dispatch=dispatch))(x, tokens_of(valid))
    layer = layer_of(moe_of("topk", dispatch=dispatch, shared_experts=3))
    y, statistics = layer(x, tokens_of(valid))
    shared = layer.shared_experts
    experts = zip(shared.wi_MH.split(16, dim=1), shared.wo_HM.split(16, dim=0), strict=True)
    outputs = [(x @ wi).relu() @ wo for wi, wo in experts]
    assert len(outputs) == 3
    torch.testing.assert_close(y, plain + sum(outputs), atol=1e-6, rtol=1e-5)
    assert torch.equal(statistics.usage_PE, statistics_without.usage_PE)
    assert torch.equal(statistics.loss, statistics_without.loss)
    mixed = layer_of(moe_of("topk", dispatch=dispatch, shared_experts=3, conditional={}))  # the gate is 1 / 2 at first
    dense = mixed.conditional.shared
    expected = (y + (x @ dense.wi_MH).relu() @ dense.wo_HM) / 2
    torch.testing.assert_close(mixed(x, tokens_of(valid))[0], expected, atol=1e-6, rtol=1e-5)


def test_conditional_gate_drop_leaves_tokens_to_the_shared_network():
    layer = layer_of(moe_of("dropless", conditional={"drop": 1.0}))
    x, valid = some_tokens(1, 10, padding=0.0)
    y, _ = layer(x, tokens_of(valid))
    torch.testing.assert_close(y, layer.conditional.shared(x))


@pytest.mark.parametrize("gate", ["top2", "top1", "dropless", "prioritized", "topk", "sigmoid", "node_limited"])
def test_a_router_in_chunks_is_the_router_at_once(gate, monkeypatch):
    """Losses, statistics and gradients agree in float64. Chunks do not divide the group here."""
    x, valid = some_tokens(2, 25)
    results = []
    for chunk in (1 << 20, 2 * 4 * 7):
        monkeypatch.setattr(router_chunks, "CHUNK", chunk)
        layer = layer_of(moe_of(gate, z_weight=0.1)).double()
        inputs = x.double().requires_grad_()
        torch.manual_seed(1)
        y, statistics = layer(inputs, tokens_of(valid))
        early = torch.autograd.grad(statistics.loss, trained(layer.router), retain_graph=True)
        gradients = torch.autograd.grad(y.square().sum() + statistics.loss, [inputs, *trained(layer)])
        names = ("loss", "entropy", "sampled", "not_finite", "usage_PE")
        results.append([y, *(getattr(statistics, name) for name in names), *early, *gradients])
    for whole, chunked in zip(*results, strict=True):
        torch.testing.assert_close(chunked, whole, atol=1e-12, rtol=1e-12)


def test_a_router_in_chunks_keeps_no_logits(monkeypatch):
    """Every tensor that autograd saves is smaller than one [S, E] matrix."""
    monkeypatch.setattr(router_chunks, "CHUNK", 64 * 16)
    layer = layer_of(moe_of("top2", num_experts=64))
    x, valid = some_tokens(1, 512)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.numel()) or t, lambda t: t):
        layer.router(x.requires_grad_(), tokens_of(valid))
    assert max(saved) < 512 * 64


@pytest.mark.parametrize("gate", ["top2", "top1", "topk", "sigmoid"])
def test_the_balance_loss_is_one_where_gates_are_uniform(gate):
    """Line 13 of GShard's Algorithm 1 times E² is 1: the shares of all experts sum to 1 for any choice."""
    layer = layer_of(moe_of(gate), noisy_weights=False)
    torch.nn.init.zeros_(layer.router.wg_EM)
    x, valid = some_tokens(3, 16)
    _, statistics = layer(x, tokens_of(valid))
    assert statistics.losses["balance"].item() == pytest.approx(3)  # summed over groups
