"""Feed-forward networks with SwiGLU and RMSNorm, against their papers' formulas in plain float64.

SwiGLU: arXiv:2002.05202, equation 6, FFN(x) = (Swish_1(x W) ⊙ x V) W_2 with Swish_1(x) = x · sigmoid(x).
RMSNorm: arXiv:1910.07467, equation 4, x / sqrt(mean of squares) times a gain.
"""

import pytest
import torch

from pipeline.batch.assembly import assemble
from pipeline.batch.config import GroupShape
from pipeline.model.activations import activate
from pipeline.model.config import MoEConfig
from pipeline.model.feed_forward import FeedForward
from pipeline.model.norm import build_norm
from pipeline.model.transformer import Transformer
from tests.unit.model.test_transformer import MODERN, Pairs, built, small

EXACT = {"atol": 1e-12, "rtol": 1e-12}  # float64: only the order of sums differs


def draw(*shape, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()


def swiglu(x, w, v, w2):
    gate = x @ w
    return (gate / (1 + torch.exp(-gate)) * (x @ v)) @ w2


def rms_norm(x, gain):
    return x / torch.sqrt((x * x).mean(dim=-1, keepdim=True) + 1e-5) * gain


def same(actual, expected, inputs):
    """Assert equal outputs, and equal gradients of a sum with other weights for each element."""
    torch.testing.assert_close(actual, expected, **EXACT)
    weights = torch.linspace(-1, 1, actual.numel(), dtype=torch.float64).view_as(actual)
    gradients = [torch.autograd.grad((y * weights).sum(), inputs) for y in (actual, expected)]
    for gradient, plain in zip(*gradients, strict=True):
        torch.testing.assert_close(gradient, plain, **EXACT)


def test_hidden_units_by_hand():
    """silu(1) = 1 / (1 + e^-1) = 0.731059, silu(-2) = -2 / (1 + e^2) = -0.238406."""
    hidden = activate(torch.tensor([1.0, -2.0]), torch.tensor([3.0, 0.5]))
    torch.testing.assert_close(hidden, torch.tensor([2.193176, -0.119203]), atol=1e-6, rtol=0)


def test_a_gated_network_is_its_formula():
    network = FeedForward(6, 10, "swiglu").double()
    for number, parameter in enumerate(network.parameters()):
        parameter.data = draw(*parameter.shape, seed=number).data
    x = draw(3, 4, 6)
    same(network(x), swiglu(x, network.wi_MH, network.wu_MH, network.wo_HM), [x, *network.parameters()])


def test_a_gated_network_has_the_bits_of_plain_autograd():
    """`SwiGLU` computes again in backward what autograd would have kept."""
    inputs = draw(2, 3, 8), draw(2, 3, 8, seed=2)
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        a, b = (t.detach().to(dtype).requires_grad_() for t in inputs)
        results = [activate(a, b), torch.nn.functional.silu(a) * b]
        assert torch.equal(*results)
        gradients = [torch.autograd.grad(y.double().square().sum(), (a, b)) for y in results]
        assert all(map(torch.equal, *gradients))


def test_rms_norm_is_its_formula():
    norm = build_norm(small(dim=6, **MODERN)).double()
    norm.weight.data = draw(6, seed=3).data
    assert [name for name, _ in norm.named_parameters()] == ["weight"]
    x = draw(3, 4, 6)
    same(norm(x), rms_norm(x, norm.weight), [x, norm.weight])


def plain_layer(layer, x_LM):
    """Return an encoder layer of one sentence, pre-norm."""
    attention, M = layer.self_attention, x_LM.shape[-1]
    y_LM = rms_norm(x_LM, layer.self_attention_norm.weight)
    query, key, value = (
        torch.einsum("lm,mnd->nld", y_LM, w) for w in (attention.wq_MND, attention.wk_MND, attention.wv_MND)
    )
    heads = ((query @ key.mT) / attention.head_dim**0.5).softmax(dim=-1) @ value
    x_LM = x_LM + torch.einsum("nld,ndm->lm", heads, attention.wo_NDM)
    network, y_LM = layer.feed_forward, rms_norm(x_LM, layer.feed_forward_norm.weight)
    if isinstance(network, FeedForward):
        return x_LM + swiglu(y_LM, network.wi_MH, network.wu_MH, network.wo_HM)
    gates_LE = (y_LM @ network.router.wg_EM.T).softmax(dim=-1)
    weight_LK, expert_LK = gates_LE.topk(2)
    weight_LK = weight_LK / weight_LK.sum(dim=-1, keepdim=True)
    experts = network.experts
    rows = [
        sum(
            weight * swiglu(y_M, experts.wi_EMH[e], experts.wu_EMH[e], experts.wo_EHM[e])
            for weight, e in zip(weight_LK[at], expert_LK[at].tolist(), strict=True)
        )
        for at, y_M in enumerate(y_LM)
    ]
    return x_LM + torch.stack(rows).view(-1, M)


@pytest.mark.parametrize("moe", [MoEConfig(), MoEConfig(num_experts=4, expert_dim=24)], ids=["dense", "experts"])
def test_the_encoder_is_its_formula(moe):
    """Layers with attention, two norms and a dense network, or two experts of a token, and the final norm."""
    model: Transformer = built(small(moe=moe, **MODERN)).double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.copy_(draw(*parameter.shape, seed=len(name)))
    source = [5, 9, 7, 30, 2]
    batch = assemble([[(0, 0)]], GroupShape(rows=1, source=5, target=2), [Pairs([(source, [6, 2])])])
    memory_BLM, _ = model.encode(batch)
    x_LM = model.embed(model.source_embedding_VM, batch.encoder_tokens_BL, batch.encoder_positions_BL)[0]
    for layer in model.encoder.layers:
        x_LM = plain_layer(layer, x_LM)
    same(memory_BLM[0], rms_norm(x_LM, model.encoder.norm.weight), list(model.encoder.parameters()))
