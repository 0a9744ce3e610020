"""Options that models of others need: biases of projections, and a factor on the outputs of experts."""

from dataclasses import asdict, replace

import pytest
import torch
import torch.nn.functional as F

from pipeline.batch.assembly import assemble
from pipeline.batch.config import GroupShape
from pipeline.config import load_config, set_values
from pipeline.decode.search.incremental import DecoderState
from pipeline.model.attention import Attention
from pipeline.model.config import MoEConfig
from pipeline.model.feed_forward import FeedForward
from pipeline.model.flops import count_parameters
from pipeline.model.moe.experts import Experts
from pipeline.model.moe.tokens import Tokens
from pipeline.vocab.symbols import EOS
from tests.gates import moe_of
from tests.unit.model.test_transformer import Pairs, built, small

GATES = ["top2", "dropless", "top1"]


@torch.no_grad()
def with_biases(module, seed=1):
    """Give every bias a value of its own: they start at zero, where nobody sees them."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) / 4)
    return module.double()


def test_projections_of_attention_are_torchs_linear_layers():
    attention = with_biases(Attention(8, 2, 4, biases=True))
    x, memory = torch.randn(3, 5, 8).double(), torch.randn(3, 7, 8).double()

    def linear(t, weight, bias):
        return F.linear(t, weight.flatten(1).T, bias).unflatten(-1, (2, 4)).transpose(1, 2)

    for keys in (x, memory):
        query = linear(x, attention.wq_MND, attention.bq_X)
        key, value = linear(keys, attention.wk_MND, attention.bk_X), linear(keys, attention.wv_MND, attention.bv_X)
        heads = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        expected = F.linear(heads, attention.wo_NDM.flatten(0, 1).T, attention.bo_M)
        torch.testing.assert_close(attention(x, keys, None), expected)


def test_the_feed_forward_network_is_two_linear_layers():
    network, x = with_biases(FeedForward(8, 12, biases=True)), torch.randn(5, 8).double()
    expected = F.linear(F.linear(x, network.wi_MH.T, network.bi_H).relu(), network.wo_HM.T, network.bo_M)
    torch.testing.assert_close(network(x), expected)


@pytest.mark.parametrize("counts", [None, [4, 0, 2]], ids=["equal", "ragged"])
def test_experts_are_linear_layers_forward_and_backward(counts):
    experts, rows = with_biases(Experts(3, 8, 12, biases=True)), torch.randn(6, 8).double()
    chosen = [2, 2, 2] if counts is None else counts
    expected = torch.cat(
        [
            F.linear(F.linear(x, wi.T, bi[0]).relu(), wo.T, bo[0])
            for x, wi, bi, wo, bo in zip(
                torch.split(rows, chosen),
                *(experts.wi_EMH, experts.bi_E1H, experts.wo_EHM, experts.bo_E1M),
                strict=True,
            )
        ]
    )
    output = experts(rows, None if counts is None else torch.tensor(counts))
    torch.testing.assert_close(output, expected)
    with torch.no_grad():
        torch.testing.assert_close(experts(rows, None if counts is None else torch.tensor(counts)), expected)
    weights = list(experts.parameters())
    assert len(weights) == 4
    for actual, reference in zip(
        torch.autograd.grad(output.square().sum(), weights, retain_graph=True),
        torch.autograd.grad(expected.square().sum(), weights),
        strict=True,
    ):
        torch.testing.assert_close(actual, reference)


@pytest.mark.parametrize("gate", GATES)
def test_a_step_of_decoding_computes_what_the_packed_model_does(gate):
    model = built(small(moe=moe_of(gate, output_scale=0.6), biases=True)).eval()
    model.double()
    with_biases(model.encoder)
    with_biases(model.decoder, seed=2)
    source, target = [4, 9, 8, 30, EOS], [7, 9, 11, EOS]
    shape = GroupShape(rows=1, source=len(source), target=len(target))
    batch = assemble([[(0, 0)]], shape, [Pairs([(source, target)])])
    with torch.inference_mode():
        memory, _ = model.encode(batch)
        expected = (model.decode(batch, memory)[0] @ model.target_embedding_VM.T)[0]
        state = DecoderState(model, torch.tensor([source]), beam=1, max_length=8)
        for at, token in enumerate([EOS, *target[:-1]]):
            torch.testing.assert_close(state.step(torch.tensor([token]))[0], expected[at], atol=1e-10, rtol=0)


@pytest.mark.parametrize("gate", GATES)
def test_outputs_of_experts_are_scaled(gate):
    plain, scaled = (built(small(moe=moe_of(gate, output_scale=scale))).eval() for scale in (1.0, 0.6))
    x, tokens = torch.randn(12, 16), Tokens.of_mask(torch.ones(12, 1, dtype=torch.bool))
    outputs = [model.decoder.layers[1].transform(x, tokens)[0] for model in (plain, scaled)]
    torch.testing.assert_close(outputs[1], 0.6 * outputs[0])


@pytest.mark.parametrize("moe", [MoEConfig(), moe_of("top2"), moe_of("top2", conditional={})], ids=str)
def test_biases_are_counted_and_start_at_zero(moe):
    config = small(moe=moe, biases=True, heads=4, head_dim=8)
    model = built(config)
    count = count_parameters(config, source_vocabulary=50, target_vocabulary=50, shared=False)
    assert count.total == sum(parameter.numel() for parameter in model.parameters())
    assert (
        count.total
        > count_parameters(
            replace(config, biases=False), source_vocabulary=50, target_vocabulary=50, shared=False
        ).total
    )
    biases = {name: p for name, p in model.named_parameters() if name.rpartition(".")[2].startswith("b")}
    assert not any(bias.any() for name, bias in biases.items() if not name.endswith("norm.bias"))
    assert len(biases) > 20


def test_settings_that_are_off_are_in_no_record():
    """Keys of stages are hashes of these records."""
    off, on = (small(moe=moe_of("top2", output_scale=scale), biases=scale < 1) for scale in (1.0, 0.5))
    names = {name for config in (off, on) for name in asdict(config, dict_factory=set_values)}
    assert asdict(off, dict_factory=set_values).keys() == names - {"biases"}
    assert "output_scale" not in asdict(off, dict_factory=set_values)["moe"]
    assert asdict(on, dict_factory=set_values)["moe"]["output_scale"] == 0.5


@pytest.mark.parametrize("letter", ["H", "N"])
def test_a_layout_that_would_add_a_bias_twice_is_refused(letter):
    words = [
        "recipes=smoke",
        "runtime.ep=1",
        "runtime.mp=2",
        "runtime.processes=2",
        "layout.G=data",
        f"+layout.{letter}=model",
    ]
    load_config(words)
    with pytest.raises(ValueError, match=f"layout.{letter}=model with model.biases=true.*set runtime.mp=1"):
        load_config([*words, "model.biases=true"])


@pytest.mark.parametrize("scale", ["0", "1.5"])
def test_a_scale_out_of_range_is_refused(scale):
    with pytest.raises(ValueError, match=rf"model.moe.output_scale={scale}.* must lie in \(0, 1\]"):
        load_config(["recipes=smoke", f"model.moe.output_scale={scale}"])


def test_gated_networks_have_no_biases():
    with pytest.raises(ValueError, match=r"model\.biases=true with model\.activation=swiglu: .* model\.biases=false"):
        load_config(["recipes=smoke", "model.biases=true", "model.activation=swiglu"])
