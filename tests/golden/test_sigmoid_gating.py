"""Sigmoid scores with a balancing bias (arXiv:2408.15664; DeepSeek-V3, arXiv:2412.19437, equations 13 to 16)."""

import math
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist

from pipeline.engine.expert_bias import ExpertBiases
from pipeline.model.config import ModelConfig, MoEConfig
from pipeline.model.initialization import initialize
from pipeline.model.moe.gates.choices import choose
from pipeline.model.moe.gates.token_choice import top_k_of_choices
from pipeline.model.moe.gates.top_k_config import TopKConfig
from pipeline.model.moe.layer import MoE
from pipeline.model.moe.router_loss import observe
from pipeline.model.moe.tokens import Tokens
from pipeline.model.transformer import Transformer


def gating_of(logits, k, bias=None, valid=None):
    valid = torch.ones(logits.shape[:2], dtype=torch.bool) if valid is None else valid
    return top_k_of_choices(choose(logits, k, valid, sigmoid=True, bias_E=bias), None, valid_GS=valid)


def logit(score):
    return math.log(score / (1 - score))


def test_the_bias_changes_the_choice_and_not_the_weights():
    """With scores 0.9, 0.5, 0.4, 0.1 the best two are e0 and e1, with 0.9 / 1.4 and 0.5 / 1.4.

    A bias of 0.2 on e2 lifts it over e1, so the choice is e0 and e2, with 0.9 / 1.3 and 0.4 / 1.3. One of -0.6 on e0
    makes it the second choice behind e1, and weights are again those of the scores.
    """
    logits = torch.tensor([[[logit(s) for s in (0.9, 0.5, 0.4, 0.1)]]], dtype=torch.float64)
    for bias, experts, weights in (
        (None, [0, 1], [0.9 / 1.4, 0.5 / 1.4]),
        ([0.0, 0.0, 0.2, 0.0], [0, 2], [0.9 / 1.3, 0.4 / 1.3]),
        ([-0.45, 0.0, 0.0, 0.0], [1, 0], [0.5 / 1.4, 0.9 / 1.4]),
    ):
        gating = gating_of(logits, 2, None if bias is None else torch.tensor(bias, dtype=torch.float64))
        assert gating.expert_GSK[0, 0].tolist() == experts
        torch.testing.assert_close(gating.weight_GSK[0, 0], torch.tensor(weights, dtype=torch.float64))


@pytest.mark.parametrize(("E", "k"), [(16, 8), (6, 2), (3, 1)])
def test_equals_a_plain_computation_with_gradients(E, k):
    source = torch.Generator().manual_seed(E + k)
    logits = torch.randn(2, 20, E, generator=source, dtype=torch.float64) * 3
    bias = torch.randn(E, generator=source, dtype=torch.float64) * 0.3
    valid = torch.rand(2, 20, generator=source) > 0.2
    goal = torch.randn(2, 20, E, generator=source, dtype=torch.float64)
    gradients = []
    for plain in (False, True):
        inputs = logits.clone().requires_grad_()
        if plain:
            scores = 1 / (1 + torch.exp(-inputs))
            chosen = torch.zeros_like(scores).scatter(-1, (scores + bias).topk(k).indices, 1.0)
            weights = scores * chosen / (scores * chosen).sum(-1, keepdim=True) * valid.unsqueeze(-1)
            used = (chosen * valid.unsqueeze(-1)).sum(1) / valid.sum(1, keepdim=True) / k
            share = scores / scores.sum(-1, keepdim=True) * valid.unsqueeze(-1)
            balance = (used * share.sum(1) / valid.sum(1, keepdim=True)).mean(-1)
        else:
            gating = gating_of(inputs, k, bias, valid)
            weights, balance = gating.dense().sum(-1), gating.losses["balance"]
        gradients.append((weights, balance, *torch.autograd.grad((weights * goal).sum() + balance.sum(), inputs)))
    for actual, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(actual, expected, atol=1e-12, rtol=1e-9)


def test_scores_that_underflow_give_finite_weights():
    """A bias can choose experts whose scores are below the smallest number. They then share the weight alike."""
    logits = torch.tensor([[[0.0, -300.0, -300.0, -300.0]]]).requires_grad_()
    gating = gating_of(logits, 2, torch.tensor([0.0, 2.0, 2.0, 0.0]))
    assert gating.expert_GSK[0, 0].tolist() == [1, 2]
    torch.testing.assert_close(gating.weight_GSK[0, 0], torch.tensor([0.5, 0.5]))
    gating.weight_GSK.square().sum().backward()
    assert bool(logits.grad.isfinite().all())
    alike = gating_of(torch.full((1, 1, 4), -300.0), 2)
    torch.testing.assert_close(alike.weight_GSK[0, 0], torch.tensor([0.5, 0.5]))


def test_the_entropy_is_that_of_the_gates():
    """Scores 0.6 and 0.2 are gates of 3/4 and 1/4."""
    logits = torch.tensor([[[logit(0.6), logit(0.2)]]], dtype=torch.float64)
    entropy = observe(logits, torch.ones(1, 1, dtype=torch.bool), with_z=False, sigmoid=True).entropy
    assert float(entropy) == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25), rel=1e-12)


@pytest.fixture
def alone(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


def model_of(**gate):
    moe = MoEConfig(num_experts=4, expert_dim=8, gate=TopKConfig(score="sigmoid", balance_weight=0.0, **gate))
    config = ModelConfig(dim=8, ffn_dim=8, heads=2, encoder_layers=2, decoder_layers=2, dropout=0.0, moe=moe)
    model = Transformer(config, source_vocabulary=9, target_vocabulary=9, shared=False, max_positions=4)
    initialize(model, 1)
    return model


def test_biases_move_by_the_sign_of_the_missing_load(alone):
    """Algorithm 1 by hand. 6, 2, 4 and 4 choices are one 4 more, one 4 less and two times the fair share of 4."""
    model = model_of(bias_rate=0.25)
    layers = list(model.moe_layers().values())
    biases = ExpertBiases(model, alone)
    x = torch.zeros(1, 2, 8)
    _, statistics = layers[0](x, Tokens.of_mask(torch.ones(1, 2, dtype=torch.bool)))
    for number, usage in enumerate([[[5, 1, 1, 2], [1, 1, 3, 2]], [[0, 0, 1, 3], [0, 0, 0, 0]]]):
        for counts in usage:
            alike = torch.tensor([[1, 1, 0, 0], [0, 0, 1, 1]])  # of two language pairs
            usage_of_layers = torch.tensor([counts, [0, 0, 0, 0]]), alike
            biases.count([replace(statistics, usage_PE=usage_PE) for usage_PE in usage_of_layers])
        biases.move()
        biases.clear()
        expected = [[-0.25, 0.25, 0.0, 0.0], [0.0, 0.5, 0.0, -0.25]][number]
        assert layers[0].router.bias_E.tolist() == expected
        assert layers[1].router.bias_E.tolist() == [0.0] * 4


def test_balance_comes_without_a_loss(alone):
    """Tokens that all want expert 0 are spread over all experts after some steps, though no weight changes.

    The layer has no auxiliary loss, and evaluation takes the bias too but does not move it.
    """
    model = model_of(bias_rate=0.02)
    layer = next(iter(model.moe_layers().values()))
    assert isinstance(layer, MoE)
    assert not layer.loss_weights
    with torch.no_grad():
        layer.router.wg_EM.normal_(generator=torch.Generator().manual_seed(2))
        layer.router.wg_EM[0] = 0
        layer.router.wg_EM[0, 0] = 3.0
    x = torch.randn(1, 400, 8, generator=torch.Generator().manual_seed(3))
    x[..., 0] = 1.0
    tokens, biases, loads = Tokens.of_mask(torch.ones(400, 1, dtype=torch.bool)), ExpertBiases(model, alone), []
    for _ in range(150):
        _, statistics = layer(x, tokens)
        biases.count([statistics] * len(model.moe_layers()))
        biases.move()
        biases.clear()
        loads.append(statistics.usage_PE[0].double() / 200)
    assert loads[0].max() > 1.5
    assert 0.9 < torch.stack(loads[-20:]).mean(0).min() < torch.stack(loads[-20:]).mean(0).max() < 1.1
    assert not layer.router.bias_E.requires_grad
