"""The model: packing, masks, positions, losses, and counts of parameters and FLOPs."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pipeline.batch.assembly import assemble
from pipeline.batch.config import GroupShape
from pipeline.model.config import ModelConfig, MoEConfig
from pipeline.model.flops import count_parameters, expert_row_flops, forward_flops, forward_flops_without_experts
from pipeline.model.initialization import initialize
from pipeline.model.loss import vocabulary_loss
from pipeline.model.moe.gates.config import ExpertChoiceConfig, Top2Config
from pipeline.model.moe.layer import MoE
from pipeline.model.noise import key, seed_group
from pipeline.model.transformer import Losses, Transformer, sinusoids
from pipeline.vocab.symbols import EOS
from tests.gates import GATES, moe_of


class Pairs:
    """Encoded sentences from lists."""

    def __init__(self, rows):
        self.rows = rows

    def source(self, index):
        return np.array(self.rows[index][0])

    def target(self, index):
        return np.array(self.rows[index][1])


def random_pairs(count, seed=0, vocabulary=50):
    rng = np.random.default_rng(seed)

    def sentence():
        return [*rng.integers(5, vocabulary, size=rng.integers(1, 8)).tolist(), EOS]

    return Pairs([(sentence(), sentence()) for _ in range(count)])


def small(num_experts=4, dropout=0.0, moe=None, **changes):
    values = {"dim": 16, "ffn_dim": 32, "heads": 2, "encoder_layers": 2, "decoder_layers": 4, "dropout": dropout}
    if moe is None:
        moe = MoEConfig(num_experts=num_experts, expert_dim=16) if num_experts else MoEConfig()
    return ModelConfig(**{**values, **changes}, moe=moe)


MOE_LAYERS = [MoEConfig(), *(moe_of(gate) for gate in GATES), moe_of("top2", z_weight=0.1, conditional={})]
MOE_LAYERS.append(moe_of("dropless", shared_experts=2))
NAMES = ["dense", *GATES, "cmr", "shared experts"]
MODERN = {"activation": "swiglu", "norm": "rms"}


def built(config, shared=False, seed=1):
    sizes = {"source_vocabulary": 50, "target_vocabulary": 50}
    model = Transformer(config, **sizes, shared=shared, max_positions=64)
    initialize(model, seed)
    return model


@pytest.mark.parametrize("moe", MOE_LAYERS, ids=NAMES)
def test_a_sentence_packed_with_others_is_the_sentence_alone(moe):
    data = random_pairs(4)
    shape = GroupShape(rows=2, source=24, target=24)
    packed = assemble([[(0, 0), (0, 1), (0, 2)], [(0, 3)]], shape, [data])
    model = built(small(moe=moe)).eval()
    nll = model(packed, label_smoothing=0.0).nll_BT
    for row, segment, index in [(0, 1, 0), (0, 2, 1), (0, 3, 2), (1, 1, 3)]:
        length = len(data.target(index))
        alone = assemble([[(0, index)]], GroupShape(rows=1, source=len(data.source(index)), target=length), [data])
        packed_nll = nll[row][packed.decoder_segments_BT[row] == segment]
        torch.testing.assert_close(packed_nll, model(alone, label_smoothing=0.0).nll_BT[0], atol=1e-5, rtol=1e-5)


def test_nothing_sees_later_target_tokens_or_padding():
    data = random_pairs(3)
    batch = assemble([[(0, 0), (0, 1), (0, 2)]], GroupShape(rows=1, source=40, target=40), [data])
    model = built(small()).eval()
    before = model(batch, label_smoothing=0.0).nll_BT[0]
    last = int((batch.decoder_segments_BT[0] == 2).nonzero()[-1])
    batch.decoder_input_tokens_BT[0, last] = 7
    batch.decoder_input_tokens_BT[0, -1] = 7  # padding
    after = model(batch, label_smoothing=0.0).nll_BT[0]
    changed = (before - after).abs() > 1e-6
    assert changed.nonzero().flatten().tolist() == [last]


def test_empty_group_is_finite_and_zero():
    batch = assemble([], GroupShape(rows=2, source=8, target=8), [random_pairs(1)])
    model = built(small())
    losses = model(batch, label_smoothing=0.1)
    losses.loss.backward()
    assert losses.loss.item() == 0
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_every_second_layer_is_a_moe_layer_counted_from_one():
    model = built(small(encoder_layers=5, decoder_layers=4))
    kinds = [[isinstance(layer.feed_forward, MoE) for layer in side.layers] for side in (model.encoder, model.decoder)]
    assert kinds == [[False, True, False, True, False], [False, True, False, True]]


def test_sinusoids_by_hand():
    """Position 3 of a model of size 6 has half = 3 and rates 1, 10000^-0.5, 10000^-1."""
    row = sinusoids(8, 6)[3].tolist()
    angles = [3.0, 3.0 / 100.0, 3.0 / 10000.0]
    assert row == pytest.approx([*map(math.sin, angles), *map(math.cos, angles)], abs=1e-6)


def test_first_token_of_a_sentence_has_position_two():
    model = built(small())
    x = model.embed(torch.zeros(50, 16), torch.tensor([[5]]), torch.tensor([[0]]))
    torch.testing.assert_close(x[0, 0], sinusoids(4, 16)[2])


def test_embeddings_are_times_the_root_of_the_model_size():
    """Section 3.4 of arXiv:1706.03762: rows of ones in a model of size 16 are rows of 4 before positions are added."""
    x = built(small()).embed(torch.ones(50, 16), torch.tensor([[5, 6]]), torch.tensor([[0, 1]]))
    torch.testing.assert_close(x[0], 4.0 + sinusoids(4, 16)[2:4])


def test_a_share_of_the_loss_by_hand():
    """The share of 6 nats of 4 target tokens, and auxiliary losses of 3 and 1 over 2 groups, is 3.5."""
    layers = [SimpleNamespace(loss=torch.tensor(value)) for value in (3.0, 1.0)]
    losses = Losses(loss=torch.tensor(6.0), nll_BT=torch.zeros(1, 4), statistics=layers)
    assert losses.share(target_tokens=4, nonempty_groups=2).item() == 6 / 4 + (3 + 1) / 2


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_is_torchs_cross_entropy_forward_and_backward(smoothing):
    logits = torch.randn(7, 11, dtype=torch.float64).requires_grad_()
    target = torch.randint(0, 11, (7,))
    weights = torch.rand(7, dtype=torch.float64)
    loss, nll = vocabulary_loss(logits, torch.eye(11).double(), target, smoothing, recompute=False)
    reference = F.cross_entropy(logits, target, label_smoothing=smoothing, reduction="none")
    torch.testing.assert_close(loss, reference)
    torch.testing.assert_close(nll, F.cross_entropy(logits, target, reduction="none"))
    (grad,) = torch.autograd.grad((loss * weights).sum(), logits)
    (expected,) = torch.autograd.grad((reference * weights).sum(), logits)
    torch.testing.assert_close(grad, expected)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("moe", MOE_LAYERS, ids=NAMES)
@pytest.mark.parametrize("blocks", [{}, MODERN], ids=["relu", "modern"])
def test_parameter_formula_is_the_built_model(moe, shared, blocks):
    config = small(moe=moe, heads=4, head_dim=8, **blocks)
    count = count_parameters(config, source_vocabulary=50, target_vocabulary=50, shared=shared)
    assert count.total == sum(p.numel() for p in built(config, shared).parameters())
    idle = 0
    for decoder, layers in ((False, 2), (True, 4)):
        if moe.num_experts:
            visited = moe.gate_of(decoder=decoder).experts_per_token
            expert = (3 if blocks else 2) * config.dim * moe.expert_dim
            idle += (moe.num_experts - visited) * expert * config.num_moe_layers(layers)
    assert count.total - count.active == idle


FULL = GroupShape(rows=2, source=16, target=12)


def counted_flops(config):
    """Count the forward FLOPs of full rows by torch, and return them with the statistics of the MoE layers.

    Attention runs as plain matmuls, because torch's counter knows those.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    data = Pairs([([*range(5, 20), EOS], [*range(5, 16), EOS])])
    batch = assemble([[(0, 0)], [(0, 0)]], FULL, [data])
    model = built(config)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        losses = model(batch, label_smoothing=0.0)
    return counter.get_total_flops(), losses.statistics


@pytest.mark.parametrize("moe", MOE_LAYERS, ids=NAMES)
@pytest.mark.parametrize("blocks", [{}, MODERN], ids=["relu", "modern"])
def test_flops_formula_counts_what_torch_counts(moe, blocks):
    """The formula agrees with torch's own counter at capacity factor 1.

    The formula leaves out sums over router outputs, and torch a matrix times a vector. That is below 1 % even here.
    """
    if moe.num_experts and getattr(moe.gate, "capacity_factor", 0) > 1:
        moe = replace(moe, gate=replace(moe.gate, capacity_factor=1.0))
    config = small(moe=moe, **blocks)
    flops, _ = counted_flops(config)
    assert flops == pytest.approx(forward_flops(config, 50).of_shape(FULL), rel=0.01)


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.7])
@pytest.mark.parametrize("activation", ["relu", "swiglu"])
def test_executed_flops_follow_from_the_rows_that_experts_report(factor, activation):
    """The formula agrees with torch's counter for more rows than choices, and for fewer."""
    moe = MoEConfig(num_experts=4, expert_dim=16, gate=Top2Config(capacity_factor=factor))
    config = small(moe=moe, activation=activation)
    flops, statistics = counted_flops(config)
    rows = sum(int(layer.rows) for layer in statistics)
    without_experts = forward_flops_without_experts(config, 50).of_shape(FULL)
    assert flops == pytest.approx(without_experts + rows * expert_row_flops(config), rel=0.01)
    assert rows >= sum(int(layer.kept) for layer in statistics)


def test_initial_weights_of_an_expert_do_not_depend_on_how_many_there_are():
    few, many = built(small(4)), built(small(8))
    weights = [model.encoder.layers[1].feed_forward.experts.wi_EMH for model in (few, many)]
    assert torch.equal(weights[0], weights[1][:4])
    assert not torch.equal(weights[1][0], weights[1][1])


def test_noise_is_a_function_of_seed_step_and_group():
    draws = []
    for step, group in [(1, 0), (1, 1), (2, 0), (1, 0)]:
        torch.rand(int(torch.randint(1, 9, ())))  # earlier draws must not matter
        seed_group(7, step, group)
        draws.append(torch.rand(4).tolist())
    assert draws[0] == draws[3]
    assert len({tuple(d) for d in draws}) == 3
    assert key(1, "a") != key("1a")


def test_shared_vocabulary_needs_one_size():
    with pytest.raises(ValueError, match="one size"):
        Transformer(small(), source_vocabulary=50, target_vocabulary=40, shared=True, max_positions=8)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"dim": 15}, "model.dim=15 must be even"),
        ({"heads": 3}, "not divisible by model.heads=3"),
        ({"dropout": 1.0}, "model.dropout=1.0"),
        ({"encoder_layers": 0}, "model.encoder_layers=0"),
    ],
)
def test_impossible_models_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        small(**values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_experts": 1, "expert_dim": 8}, "num_experts=1"),
        ({"num_experts": 4, "expert_dim": 0}, "expert_dim=0"),
        ({"num_experts": 4, "expert_dim": 8, "gate": Top2Config(capacity_factor=0.0)}, "would drop every token"),
        ({"num_experts": 4, "expert_dim": 8, "gate": Top2Config(balance_weight=-1.0)}, "balance_weight"),
        ({"num_experts": 4, "expert_dim": 8, "gate": ExpertChoiceConfig()}, "expert_choice decides .* later ones"),
    ],
)
def test_impossible_moe_layers_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        MoEConfig(**values)
