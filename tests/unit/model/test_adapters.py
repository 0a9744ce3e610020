"""Adapters of projections: LoRA as in equation 3 of arXiv:2106.09685, and merging."""

from dataclasses import replace

import pytest
import torch

from pipeline.model.adapters import Adapter, add_adapters, merged, merged_difference
from pipeline.model.components import is_adapter
from pipeline.model.config import ConditionalConfig, ModelConfig, MoEConfig
from pipeline.model.initialization import initialize
from pipeline.model.lora import LoraConfig, weight_of
from pipeline.model.transformer import Transformer
from pipeline.verify.batches import SHAPE, VOCABULARY, synthetic_step

CONFIG = ModelConfig(
    dim=16,
    ffn_dim=24,
    heads=2,
    encoder_layers=2,
    decoder_layers=2,
    dropout=0.0,
    moe=MoEConfig(num_experts=4, expert_dim=8, conditional=ConditionalConfig()),
)
GATED = replace(CONFIG, activation="swiglu", moe=replace(CONFIG.moe, shared_experts=1))


def built(lora, config=CONFIG):
    sizes = {"source_vocabulary": VOCABULARY, "target_vocabulary": VOCABULARY}
    model = Transformer(config, **sizes, shared=False, max_positions=max(SHAPE.source, SHAPE.target))
    if lora is not None:
        add_adapters(model, lora)
    initialize(model, 1)
    return model.double().eval()


@torch.no_grad()
def loss_of(model):
    return model(synthetic_step(1, 1).groups[0], label_smoothing=0.1).nll_BT


def test_new_adapters_change_nothing_and_leave_the_initial_weights_as_they_were():
    plain, adapted = built(None), built(LoraConfig(rank=4))
    assert torch.equal(loss_of(adapted), loss_of(plain))
    named = dict(adapted.named_parameters())
    assert all(torch.equal(named.pop(name), parameter) for name, parameter in plain.named_parameters())
    assert len(named) == 2 * (24 + 4 + 4)
    for name, parameter in named.items():
        if name.rpartition(".")[2].startswith("b_"):
            assert not parameter.any()
        else:  # uniform, as torch's own linear layers
            bound = (parameter.numel() / 4) ** -0.5
            assert 0.9 * bound < parameter.abs().max() <= bound


@pytest.mark.parametrize("config", [CONFIG, GATED], ids=["relu", "gated"])
@pytest.mark.parametrize("targets", [["attention"], ["feed_forward"], ["attention", "feed_forward"]])
def test_merged_weights_compute_what_adapters_do(targets, config):
    """The models compute in float64, where sums of 16 to 64 products are rounded below 1e-12."""
    lora = LoraConfig(rank=3, alpha=5.0, targets=targets)
    adapted, merged = built(lora, config), built(None, config)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if is_adapter(name):
                parameter.normal_(generator=generator)
        weights, matrices = dict(merged.named_parameters()), dict(adapted.named_parameters())
        for a in [name for name in matrices if is_adapter(name) and name.rpartition(".")[2].startswith("a_")]:
            (b,) = (name for name in matrices if name.startswith(f"{a.rpartition('.')[0]}.b_"))
            weights[weight_of(a)] += merged_difference(matrices[a], matrices[b], 5.0 / 3)
    assert not torch.allclose(loss_of(adapted), loss_of(built(None, config)), atol=1e-2)
    torch.testing.assert_close(loss_of(adapted), loss_of(merged), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("targets", [["attention"], ["attention", "feed_forward"]])
def test_a_model_is_merged_for_a_while_and_then_has_its_old_bits(targets):
    model = built(LoraConfig(rank=3, alpha=5.0, targets=targets))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if is_adapter(name):
                parameter.normal_(generator=torch.Generator().manual_seed(len(name)))
    before, loss = {name: p.clone() for name, p in model.named_parameters()}, loss_of(model)
    with merged(model):
        assert not [name for name, _ in model.named_parameters() if is_adapter(name)]
        torch.testing.assert_close(loss_of(model), loss, rtol=1e-12, atol=1e-12)
    after = dict(model.named_parameters())
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], values) for name, values in before.items())
    with pytest.raises(KeyError), merged(model):
        raise KeyError
    assert torch.equal(loss_of(model), loss)


def test_an_adapter_by_hand():
    """x · A · B is ([1, 2] · [[1], [3]]) · [[2, 0, 1]] = 7 · [2, 0, 1], and alpha / rank is 4."""
    adapter = Adapter("wi_MH", torch.empty(2, 3), LoraConfig(rank=1, alpha=4.0))
    with torch.no_grad():
        adapter.a_MR.copy_(torch.tensor([[1.0], [3.0]]))
        adapter.b_RH.copy_(torch.tensor([[2.0, 0.0, 1.0]]))
    assert adapter(torch.tensor([[1.0, 2.0]])).tolist() == [[56.0, 0.0, 28.0]]


@torch.no_grad()
def test_dropout_is_of_the_inputs_and_of_training_alone():
    adapter = Adapter("wi_MH", torch.empty(4000, 2), LoraConfig(rank=1, alpha=1.0, dropout=0.25))
    with torch.no_grad():
        adapter.a_MR.fill_(1.0)
        adapter.b_RH.fill_(1.0)
    x = torch.ones(1, 4000)
    assert adapter.eval()(x).tolist() == [[4000.0, 4000.0]]
    torch.manual_seed(1)
    first, second = (float(adapter.train()(x)[0, 0]) for _ in range(2))
    kept = first * 0.75  # each kept input is 4/3
    assert kept == pytest.approx(round(kept), abs=0.1)
    assert 0.7 * 4000 < kept < 0.8 * 4000
    assert first != second


@pytest.mark.parametrize("lora", [None, LoraConfig(rank=2)])
def test_compiled_code_has_the_adapters(lora):
    """The feed-forward part is one graph. Attention breaks where it reads a switch of the process."""
    layer = built(lora).decoder.layers[0]
    for name, parameter in layer.named_parameters():
        if is_adapter(name):
            torch.nn.init.constant_(parameter, 0.1)
    x, memory = (torch.randn(1, 3, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(n)) for n in (1, 2))
    mask = torch.zeros(1, 1, 3, 3, dtype=torch.float64)
    for function, args, whole in ((layer._attend, (x, mask, memory, mask), False), (layer._feed_forward, (x,), True)):
        compiled = torch.compile(function, backend="eager", fullgraph=whole)(*args)
        torch.testing.assert_close(compiled, function(*args), rtol=1e-12, atol=1e-12)
        without = built(None).decoder.layers[0]
        assert torch.allclose(compiled, getattr(without, function.__name__)(*args)) == (lora is None)
