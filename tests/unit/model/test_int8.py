"""Weights of 8 bits: the arithmetic, and models that translate with them."""

import pytest
import torch

from pipeline.decode.config import DecodeConfig
from pipeline.decode.model import set_precision
from pipeline.decode.quantization import is_rounded
from pipeline.decode.search.incremental import DecoderState
from pipeline.decode.search.search import Request, search
from pipeline.jobs.default_precision import check_int8
from pipeline.model.config import ConditionalConfig, MoEConfig
from pipeline.model.int8 import Int8Product
from pipeline.vocab.symbols import PAD
from tests.gates import GATES, moe_of
from tests.unit.model.test_transformer import MODERN, built, random_pairs, small

try:
    check_int8("cpu")
    WHY_NOT = ""
except ValueError as error:
    WHY_NOT = str(error)

# Without VNNI sums of products can be wrong. Which weights are rounded, and when, is the same.
exact_sums = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


@pytest.fixture(autouse=True)
def any_processor(monkeypatch):
    monkeypatch.setattr("pipeline.decode.model.check_int8", lambda device: None)


SOURCES = [[4, *pair[0]] for pair in random_pairs(12, seed=3).rows]
SOURCE_BL = torch.tensor([[*source, *[PAD] * (9 - len(source))] for source in SOURCES])
VARIANTS = {
    "dense": {},
    "swiglu and RMSNorm": MODERN,
    "biases": {"biases": True},
    "experts with biases": {"num_experts": 4, "biases": True},
    "swiglu experts": {"num_experts": 4, **MODERN},
}


def random(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@exact_sums
def test_products_are_those_of_rounded_numbers_whatever_the_other_rows():
    """The reference multiplies whole numbers of 64 bits. A half is rounded up, as in the sums of the product."""
    x_TI, matrix_OI = random(40, 96), random(24, 96, seed=2)
    matrix_OI[3] = 0
    x_TI[5] = 0
    scale_O = (matrix_OI.abs().amax(1) / 127).clamp(min=1e-30)
    largest_T = x_TI.abs().amax(1, keepdim=True).clamp(min=1e-30)
    whole_OI, whole_TI = (matrix_OI / scale_O[:, None]).round(), (x_TI * (127 / largest_T) + 0.5).floor()
    sums_TO = whole_TI.long() @ whole_OI.long().T
    product = Int8Product(matrix_OI)
    torch.testing.assert_close(product(x_TI), sums_TO * scale_O * (largest_T / 127), rtol=1e-6, atol=0)
    assert torch.equal(product(x_TI[:7]), product(x_TI)[:7])
    assert torch.equal(product(x_TI.view(5, 8, 96)).flatten(0, 1), product(x_TI))
    assert not product(x_TI)[5].any()
    error = (product(x_TI) - x_TI @ matrix_OI.T).norm() / (x_TI @ matrix_OI.T).norm()
    assert error < 0.015


def sharp(precision, **changes):
    model = built(small(**changes)).eval()
    with torch.no_grad():
        model.target_embedding_VM.mul_(3.0)
    set_precision(model, precision)
    return model


@torch.inference_mode()
def logits(model):
    """Return the logits of a few steps, with the encoder's output and all layers in them."""
    pair_n = torch.zeros(len(SOURCES), dtype=torch.long) if model.config.moe.pairs else None
    state = DecoderState(model, SOURCE_BL, beam=1, max_length=6, pair_n=pair_n)
    return torch.stack([state.step(torch.full((len(SOURCES),), token)) for token in (4, 9, 11, 17, 6)])


@exact_sums
@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_logits_are_near_those_of_float32(changes):
    """A weight that were not in 8 bits would be read as NaN."""
    exact, rounded = (logits(sharp(precision, **changes)) for precision in ("fp32", "int8"))
    assert (rounded - exact).norm() / exact.norm() < 0.05
    assert not torch.equal(rounded, exact)


@pytest.mark.parametrize("gate", GATES)
def test_experts_of_every_gate_translate(gate):
    model = sharp("int8", moe=moe_of(gate))
    assert logits(model).isfinite().all()


@exact_sums
def test_translations_are_those_of_float32_where_the_model_is_sure():
    config = DecodeConfig(beam=3, max_length_ratio=1.0)
    exact, rounded = (
        search(sharp(precision), [Request(source=source) for source in SOURCES], config)
        for precision in ("fp32", "int8")
    )
    equal = sum(a[0].tokens == b[0].tokens for a, b in zip(exact, rounded, strict=True))
    assert equal >= len(SOURCES) * 2 // 3


def test_weights_in_8_bits_are_in_memory_once():
    model = sharp("int8", num_experts=4)
    freed = {name for name, p in model.named_parameters() if p.untyped_storage().nbytes() < 8 < p.numel()}
    assert {"encoder.layers.0.self_attention.wq_MND", "decoder.layers.0.cross_attention.wo_NDM"} <= freed
    kept = {name.rsplit(".", 1)[-1] for name, p in model.named_parameters() if name not in freed and p.dim() > 1}
    assert kept == {"target_embedding_VM", "source_embedding_VM", "wg_EM"}
    assert freed == {name for name, _ in model.named_parameters() if is_rounded(name)}


@pytest.mark.parametrize("changes", [{"shared_experts": 1}, {"conditional": ConditionalConfig()}], ids=str)
def test_networks_that_every_token_visits_are_rounded(changes):
    model = sharp("int8", moe=MoEConfig(num_experts=4, expert_dim=32, **changes))
    freed = {name for name, p in model.named_parameters() if p.untyped_storage().nbytes() < 8 < p.numel()}
    assert any("shared" in name for name in freed)
    assert freed == {name for name, _ in model.named_parameters() if is_rounded(name)}


def test_a_model_that_was_rounded_layer_by_layer_is_the_same():
    layers = built(small(num_experts=4)).eval()
    with torch.no_grad():
        layers.target_embedding_VM.mul_(3.0)
    for layer in [*layers.encoder.layers, *layers.decoder.layers]:
        set_precision(layer, "int8")
    set_precision(layers, "int8")
    assert torch.equal(logits(layers), logits(sharp("int8", num_experts=4)))
