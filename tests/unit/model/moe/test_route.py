"""Routes of every gate: equal to the einsums of GShard's Algorithm 2, and independent of padding, groups and order."""

from functools import partial

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pipeline.model.moe.dispatch import combine, dispatch
from pipeline.model.moe.gates.expert_choice import Selection, balanced_gating, expert_choice_gating
from pipeline.model.moe.gates.noisy_top_k import hierarchical_gating, noisy_top_k_gating
from pipeline.model.moe.gates.token_choice import dropless_gating, top1_gating, top2_gating

NUM_EXPERTS, NUM_FEATURES = 9, 38
THRESHOLDS = torch.linspace(0.05, 0.2, NUM_EXPERTS)


def logits(f):
    return f[..., :9]


def noisy(f, valid, capacity):
    return noisy_top_k_gating(logits(f), f[..., 9:18], 2, capacity, valid_GS=valid, noise_GSE=f[..., 18:27])


def hierarchical(f, valid, capacity):
    primary = (f[..., 27:30], f[..., 30:33])
    secondary = (f[..., :9].unflatten(-1, (3, 3)), f[..., 9:18].unflatten(-1, (3, 3)))
    noise = {"primary_noise_GSA": f[..., 33:36], "secondary_noise_GSAB": f[..., 18:27].unflatten(-1, (3, 3))}
    return hierarchical_gating(*primary, *secondary, 2, capacity, valid_GS=valid, **noise)


GATES = {  # functions of features [G, S, NUM_FEATURES], the last two a draw and a sentence, and of valid [G, S]
    "top2": lambda f, valid: top2_gating(logits(f), 4, valid_GS=valid, rnd_GS=f[..., 36].sigmoid()),
    "top2 prioritized": lambda f, valid: top2_gating(logits(f), 2, valid_GS=valid, prioritized=True),
    "top2 ragged": lambda f, valid: top2_gating(logits(f), None, valid_GS=valid),
    "top1": lambda f, valid: top1_gating(logits(f), 2, valid_GS=valid),
    "dropless": lambda f, valid: dropless_gating(logits(f), 3, valid_GS=valid),
    "noisy": lambda f, valid: noisy(f, valid, 3),
    "noisy ragged": lambda f, valid: noisy(f, valid, None),
    "hierarchical": lambda f, valid: hierarchical(f, valid, 6),
    "hierarchical ragged": lambda f, valid: hierarchical(f, valid, None),
    "balanced": lambda f, valid: balanced_gating(logits(f), THRESHOLDS.to(f), 2, valid_GS=valid, training=True),
    "balanced evaluation": lambda f, valid: balanced_gating(
        logits(f), THRESHOLDS.to(f), 2, valid_GS=valid, training=False
    ),
    "expert choice": lambda f, valid: expert_choice_gating(logits(f), 2.0, valid_GS=valid),
    "expert choice of sentences": lambda f, valid: expert_choice_gating(
        logits(f), 2.0, valid_GS=valid, sentence_GS=f[..., 37].long()
    ),
}
BY_TOKEN_ORDER = ["top2", "top1", "noisy", "hierarchical"]  # a capacity filled in the order of tokens
every_gate = pytest.mark.parametrize("gate", GATES.values(), ids=GATES.keys())


def sample(G, S, seed, dtype=torch.float64):
    """Draw features of tokens and a mask of real tokens. The middle one of three or more groups is empty."""
    source = torch.Generator().manual_seed(seed)
    features = torch.randn(G, S, NUM_FEATURES, generator=source, dtype=dtype) * 1.5
    features[..., 37] = torch.randint(0, 3, (G, S), generator=source).to(dtype)
    valid = torch.rand(G, S, generator=source) > 0.2
    valid[G // 2] &= G < 3
    return features, valid


def weights_of(decision):
    """Return combine weights without slots, [G, S, E]."""
    return decision.dense().sum(-1)


def by_einsum(x_GSM, decision, expert_EMN):
    """Compute Algorithm 2 with one-hot masks. An expert is one matrix here."""
    combine_GSEC = decision.dense()
    mask_GSEC = (combine_GSEC != 0).to(x_GSM.dtype)
    outputs_EGCN = torch.einsum("gsec,gsm,emn->egcn", mask_GSEC, x_GSM, expert_EMN)
    return torch.einsum("gsec,egcn->gsn", combine_GSEC, outputs_EGCN)


def by_gather(x_GSM, decision, expert_EMN, *, cut=True):
    route = decision.route(cut=cut)
    rows_XM = dispatch(x_GSM.flatten(0, 1), route)
    counts = [len(rows_XM) // NUM_EXPERTS] * NUM_EXPERTS if route.counts_E is None else route.counts_E.tolist()
    outputs = [rows @ expert for rows, expert in zip(rows_XM.split(counts), expert_EMN, strict=True)]
    return combine(torch.cat(outputs), route).view_as(x_GSM)


@every_gate
@pytest.mark.parametrize(("G", "S"), [(3, 20), (1, 1), (2, 7)])
def test_route_equals_the_einsums_forward_and_backward(gate, G, S):
    features, valid = sample(G, S, seed=S)
    source = torch.Generator().manual_seed(1)
    x = torch.randn(G, S, 5, generator=source, dtype=torch.float64)
    experts = torch.randn(NUM_EXPERTS, 5, 5, generator=source, dtype=torch.float64)
    goal = torch.randn(G, S, 5, generator=source, dtype=torch.float64)
    inputs = [t.requires_grad_() for t in (features, x, experts)]
    outputs, gradients = [], []
    for formulation in (by_einsum, by_gather, partial(by_gather, cut=False)):
        outputs.append(formulation(x, gate(features, valid), experts))
        gradients.append(torch.autograd.grad((outputs[-1] * goal).sum(), inputs, materialize_grads=True))
    for y, y_gradients in zip(outputs[1:], gradients[1:], strict=True):
        torch.testing.assert_close(y, outputs[0])
        for gradient, reference in zip(y_gradients, gradients[0], strict=True):
            torch.testing.assert_close(gradient, reference)
        assert y[~valid].abs().sum() == 0


@every_gate
def test_dispatch_and_combine_have_the_gradients_of_their_values(gate):
    features, valid = sample(3, 5, seed=4)
    decision = gate(features, valid)
    source = torch.Generator().manual_seed(2)
    x = torch.randn(15, 2, generator=source, dtype=torch.float64, requires_grad=True)
    keep = torch.rand(decision.weights.shape, generator=source, dtype=torch.float64).requires_grad_()
    scale_XM = torch.randn(len(decision.route().token_X), 2, generator=source, dtype=torch.float64)

    def layer(x, keep):
        route = decision.masked(keep).route()
        return combine(dispatch(x, route) * scale_XM, route)

    assert torch.autograd.gradcheck(layer, (x, keep))


class Operators(TorchDispatchMode):
    """Records the operators that are called."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(func._schema.name.removeprefix("aten::"))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("gate", "cut", "waiting"),
    [
        ("top2", True, set()),
        ("top1", True, set()),
        ("noisy", True, set()),
        ("hierarchical", True, set()),
        ("balanced", True, set()),
        ("expert choice", True, set()),
        ("top2 ragged", False, set()),
        ("dropless", False, set()),
        ("noisy ragged", False, set()),
        ("hierarchical ragged", False, set()),
        ("dropless", True, {"_local_scalar_dense"}),
        ("balanced evaluation", True, {"nonzero"}),
        ("expert choice of sentences", True, {"nonzero", "_unique2"}),
    ],
)
def test_operators_that_wait_for_a_gpu(gate, cut, waiting):
    """A capacity needs none. Without one, only rows that are cut off do, and rules that look at single sentences."""
    features, valid = sample(2, 30, seed=2)
    with Operators() as operators:
        GATES[gate](features, valid).route(cut=cut)
    every = {"_local_scalar_dense", "nonzero", "bincount", "_unique2", "unique_dim", "unique_consecutive", "equal"}
    assert operators.names & every == waiting


@pytest.mark.parametrize("gate", ["dropless", "balanced evaluation", "expert choice of sentences"])
def test_without_any_row_the_output_and_its_gradients_are_zero(gate):
    features, valid = sample(2, 6, seed=1)
    x = torch.randn(2, 6, 5, dtype=torch.float64, requires_grad=True)
    experts = torch.ones(NUM_EXPERTS, 5, 5, dtype=torch.float64)
    decision = GATES[gate](features.requires_grad_(), torch.zeros_like(valid))
    assert len(decision.route().token_X) == 0
    assert int(decision.asked) == int(decision.unserved) == 0
    y = by_gather(x, decision, experts)
    assert y.abs().sum() == 0
    for gradient in torch.autograd.grad(y.sum(), (x, features), materialize_grads=True):
        assert gradient.abs().sum() == 0


@every_gate
def test_padding_anywhere_changes_nothing(gate):
    features, valid = sample(2, 30, seed=3)
    features[~valid] = features[~valid] * 30  # features of padding must not matter
    valid[1] = valid[0]  # so that both groups have as many real tokens
    padded, alone = gate(features, valid), gate(features[:, valid[0]], torch.ones_like(valid[:, valid[0]]))
    torch.testing.assert_close(weights_of(padded)[:, valid[0]], weights_of(alone))
    assert weights_of(padded)[~valid].abs().sum() == 0
    assert padded.losses.keys() == alone.losses.keys()
    for name, loss_G in padded.losses.items():
        torch.testing.assert_close(loss_G, alone.losses[name])


@every_gate
def test_groups_do_not_meet(gate):
    features, valid = sample(3, 20, seed=5)
    together = gate(features, valid)
    for g in range(3):
        alone = gate(features[g : g + 1], valid[g : g + 1])
        torch.testing.assert_close(weights_of(together)[g], weights_of(alone)[0])
        for name, loss_G in together.losses.items():
            torch.testing.assert_close(loss_G[g], alone.losses[name][0])


@every_gate
def test_order_of_tokens_matters_only_where_it_fills_a_capacity(gate, request):
    features, valid = sample(2, 30, seed=6)
    order = torch.randperm(30, generator=torch.Generator().manual_seed(1))
    straight, shuffled = gate(features, valid), gate(features[:, order], valid[:, order])
    if request.node.callspec.id not in BY_TOKEN_ORDER:
        torch.testing.assert_close(weights_of(straight)[:, order], weights_of(shuffled))
    for name, loss_G in straight.losses.items():
        torch.testing.assert_close(loss_G, shuffled.losses[name])


@every_gate
def test_empty_group_has_no_loss_and_no_gradient(gate):
    features, valid = sample(3, 8, seed=7)
    leaf = features.float().requires_grad_()  # float32 underflows first
    decision = gate(leaf, valid)
    total = weights_of(decision).square().sum() + sum(loss_G.sum() for loss_G in decision.losses.values())
    total.backward()
    assert leaf.grad.isfinite().all()
    assert leaf.grad[1].abs().sum() == 0
    assert leaf.grad[0].abs().sum() > 0
    for loss_G in decision.losses.values():
        assert loss_G.shape == (3,)
        assert loss_G[1].item() == 0


@every_gate
def test_bfloat16_logits_are_gated_in_float32(gate):
    features, valid = sample(2, 8, seed=8)
    decision = gate(features.bfloat16(), valid)
    assert decision.weights.dtype == torch.float32
    assert all(loss_G.dtype == torch.float32 for loss_G in decision.losses.values())


@every_gate
def test_autocast_changes_nothing(gate):
    features, valid = sample(2, 40, seed=9, dtype=torch.float32)
    outside = gate(features, valid)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = gate(features, valid)
    assert torch.equal(inside.weights, outside.weights)
    for name, loss_G in outside.losses.items():
        assert torch.equal(inside.losses[name], loss_G)


@every_gate
def test_counts_of_a_decision_agree_with_its_weights(gate):
    features, valid = sample(3, 20, seed=10)
    decision = gate(features, valid)
    taken_GSE = weights_of(decision) > 0
    assert int(decision.kept) == int(taken_GSE.sum())
    assert int(decision.unserved) == int((valid & ~taken_GSE.any(-1)).sum())
    pair_GS = torch.arange(20).remainder(2).expand(3, 20)
    usage_PE = decision.usage(pair_GS, 2)
    assert int(usage_PE.sum()) == int(decision.asked) >= int(decision.kept)
    if decision.capacity is None or isinstance(decision, Selection):  # no choice is dropped
        by_pair = torch.stack([taken_GSE[:, 0::2].sum((0, 1)), taken_GSE[:, 1::2].sum((0, 1))])
        assert torch.equal(usage_PE, by_pair)


@every_gate
def test_masked_weights_are_the_ones_that_count(gate):
    features, valid = sample(2, 10, seed=11)
    decision = gate(features, valid)
    keep = torch.zeros_like(decision.weights)
    assert weights_of(decision.masked(keep)).abs().sum() == 0
    assert decision.masked(keep).route().weight_N.abs().sum() == 0
    torch.testing.assert_close(weights_of(decision.masked(keep + 0.5)), weights_of(decision) / 2)
