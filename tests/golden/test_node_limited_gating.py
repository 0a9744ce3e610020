"""Node-limited routing (DeepSeek-V3, arXiv:2412.19437, section 2.1.2): hand numbers, and a loop in numpy."""

import math

import numpy as np
import pytest
import torch

from pipeline.model.config import MoEConfig
from pipeline.model.initialization import initialize
from pipeline.model.moe.gates.choices import choose
from pipeline.model.moe.gates.token_choice import top_k_of_choices
from pipeline.model.moe.gates.top_k_config import TopKConfig
from pipeline.model.moe.layer import MoE
from pipeline.model.moe.tokens import Tokens


def gating_of(logits, k, *, capacity=None, **settings):
    valid = torch.ones(logits.shape[:2], dtype=torch.bool)
    return top_k_of_choices(choose(logits, k, valid, **settings), capacity, valid_GS=valid)


def logits_of(*scores):
    return torch.tensor([[[math.log(score / (1 - score)) for score in scores]]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("k", "max_nodes", "bias", "experts", "weights"),
    [
        # nodes have 0.9 + 0.1, 0.6 + 0.5 and 0.7 + 0.2, so the second is best, although the first has the best expert
        (2, 1, None, [2, 3], [0.6 / 1.1, 0.5 / 1.1]),
        # with one expert of each of two nodes the scores are 0.9, 0.6 and 0.7
        (2, 2, None, [0, 4], [0.9 / 1.6, 0.7 / 1.6]),
        # with two of each of two nodes the sums count again: the second and the first node
        (4, 2, None, [0, 2, 3, 1], [0.9 / 2.1, 0.6 / 2.1, 0.5 / 2.1, 0.1 / 2.1]),
        # a bias counts in the score of a node, not in a weight
        (2, 1, [0.0, 0.15, 0.0, 0.0, 0.0, 0.0], [0, 1], [0.9, 0.1]),
        # without a limit
        (2, 3, None, [0, 4], [0.9 / 1.6, 0.7 / 1.6]),
    ],
)
def test_three_nodes_of_two_experts_by_hand(k, max_nodes, bias, experts, weights):
    bias_E = None if bias is None else torch.tensor(bias, dtype=torch.float64)
    logits = logits_of(0.9, 0.1, 0.6, 0.5, 0.7, 0.2)
    gating = gating_of(logits, k, sigmoid=True, bias_E=bias_E, expert_nodes=3, max_nodes=max_nodes)
    assert gating.expert_GSK[0, 0].tolist() == experts
    torch.testing.assert_close(gating.weight_GSK[0, 0], torch.tensor(weights, dtype=torch.float64))


def chosen_by_loop(scores, k, expert_nodes, max_nodes):
    """Return the experts of one token, the best first. The lower number wins a tie."""
    size = len(scores) // expert_nodes
    nodes = [range(first, first + size) for first in range(0, len(scores), size)]
    sums = [np.sort(scores[list(node)])[::-1][: k // max_nodes].sum() for node in nodes]
    best = sorted(range(expert_nodes), key=lambda node: (-sums[node], node))[:max_nodes]
    return sorted((expert for node in best for expert in nodes[node]), key=lambda e: (-scores[e], e))[:k]


@pytest.mark.parametrize("sigmoid", [True, False], ids=["sigmoid", "softmax"])
@pytest.mark.parametrize(
    ("E", "expert_nodes", "max_nodes", "k"), [(64, 8, 4, 8), (16, 4, 2, 4), (12, 3, 1, 3), (8, 2, 1, 2), (9, 3, 3, 2)]
)
def test_equals_the_loop(E, expert_nodes, max_nodes, k, sigmoid):
    source = np.random.default_rng(E + k)
    logits, bias = 2 * source.standard_normal((2, 50, E)), 0.2 * source.standard_normal(E)
    scores = 1 / (1 + np.exp(-logits))
    if not sigmoid:
        scores = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    limit = {"expert_nodes": expert_nodes, "max_nodes": max_nodes}
    gating = gating_of(torch.from_numpy(logits), k, sigmoid=sigmoid, bias_E=torch.from_numpy(bias), **limit)
    unlimited = 0
    for group, token in np.ndindex(2, 50):
        score = scores[group, token]
        chosen = chosen_by_loop(score + bias, k, **limit)
        assert gating.expert_GSK[group, token].tolist() == chosen
        expected = torch.from_numpy(score[chosen] / score[chosen].sum())
        torch.testing.assert_close(gating.weight_GSK[group, token], expected)
        assert len({expert // (E // expert_nodes) for expert in chosen}) <= max_nodes
        unlimited += chosen == chosen_by_loop(score + bias, k, 1, 1)
    assert (unlimited == 100) == (max_nodes == expert_nodes)


def test_gradients_are_those_of_the_weights_of_the_chosen_experts():
    source = torch.Generator().manual_seed(1)
    logits = torch.randn(1, 30, 16, generator=source, dtype=torch.float64).requires_grad_()
    goal = torch.randn(1, 30, 16, generator=source, dtype=torch.float64)
    gating = gating_of(logits, 4, capacity=6, expert_nodes=4, max_nodes=2)
    assert 0 < int(gating.kept) < int(gating.asked)
    actual = torch.autograd.grad((gating.dense().sum(-1) * goal).sum(), logits)
    mask = torch.zeros_like(goal).scatter(-1, gating.expert_GSK, 1.0)
    kept = torch.zeros_like(goal).scatter(-1, gating.expert_GSK, gating.kept_GSK.double())
    gates = logits.softmax(-1)
    expected = torch.autograd.grad((gates / (gates * mask).sum(-1, keepdim=True) * kept * goal).sum(), logits)
    torch.testing.assert_close(actual, expected, atol=1e-14, rtol=1e-10)


def test_a_layer_keeps_to_the_limit_of_its_gate():
    """The limit holds in training and in evaluation; the same router without it would choose other nodes."""
    for max_nodes, most in ((1, 1), (4, 4)):
        gate = TopKConfig(k=4, capacity_factor=0.0, expert_nodes=4, max_nodes=max_nodes)
        layer = MoE(16, MoEConfig(num_experts=16, expert_dim=16, gate=gate))
        initialize(layer, 1)
        x = torch.randn(1, 200, 16, generator=torch.Generator().manual_seed(2))
        for training in (True, False):
            decision = layer.train(training).router(x, Tokens.of_mask(torch.ones(200, 1, dtype=torch.bool))).decision
            nodes = [len(set(experts)) for experts in (decision.expert_GSK[0] // 4).tolist()]
            assert max(nodes) == most
