"""Products of peers: they use our libraries and give the numbers of torch."""

import pytest
import torch
import torch.nn.functional as F

from bench import products
from bench.products import attention_by_mkl, matmul_by_mkl, use_our_libraries
from pipeline.jobs.matmul import choose_matmul
from pipeline.model.fused_attention import SWITCH


@pytest.fixture
def by_onednn():
    """Large products are done by oneDNN during the test, on any processor."""
    before = SWITCH.fp32_precision
    SWITCH.fp32_precision = "bf16"
    yield
    SWITCH.fp32_precision = before


def leaves(*shapes):
    source = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=source).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", [None, "bool", "float"])
def test_attention_is_that_of_torch_in_float32(by_onednn, causal, mask):
    """Forward and backward are exact, so MKL did them. oneDNN may round products to bfloat16, an error of 1e-2 here."""
    if causal and mask:
        pytest.skip("torch takes one or the other")
    inputs = leaves(*[(2, 3, 5, 4)] * 3)
    allowed = torch.rand(2, 1, 5, 5, generator=torch.Generator().manual_seed(2)) > 0.3
    allowed[..., 0] = True
    bias = {None: None, "bool": allowed, "float": torch.zeros(allowed.shape).masked_fill(~allowed, -1e9)}[mask]
    doubles = [t.detach().double().requires_grad_() for t in inputs]
    exact_bias = bias.double() if mask == "float" else bias
    expected = F.scaled_dot_product_attention(*doubles, attn_mask=exact_bias, is_causal=causal)
    attended = attention_by_mkl(*inputs, attn_mask=bias, is_causal=causal)
    torch.testing.assert_close(attended.double(), expected, atol=1e-5, rtol=1e-5)
    gradients = torch.autograd.grad(attended.square().sum(), inputs)
    exact = torch.autograd.grad(expected.square().sum(), doubles)
    for gradient, exact_gradient in zip(gradients, exact, strict=True):
        torch.testing.assert_close(gradient.double(), exact_gradient, atol=1e-4, rtol=1e-4)


def test_products_of_attention_are_those_of_torch_in_float32(by_onednn):
    a, b = leaves((2, 3, 64, 32), (2, 3, 32, 64))
    expected = a.detach().double() @ b.detach().double()
    product = matmul_by_mkl(a, b)
    torch.testing.assert_close(product.double(), expected, atol=1e-4, rtol=1e-4)
    exact = (
        b.detach().double().sum(-1).unsqueeze(2).expand_as(a),
        a.detach().double().sum(2).unsqueeze(3).expand_as(b),
    )
    for gradient, exact_gradient in zip(torch.autograd.grad(product.sum(), (a, b)), exact, strict=True):
        torch.testing.assert_close(gradient.double(), exact_gradient, atol=1e-4, rtol=1e-4)
    assert matmul_by_mkl(a, b[0, 0]).shape == (2, 3, 64, 64)


@pytest.mark.parametrize("library", ["mkl", "onednn"])
def test_peers_get_the_library_that_ours_gets(library, monkeypatch):
    monkeypatch.setattr(products, "choose_matmul", lambda _cpuinfo: library)
    monkeypatch.setattr(F, "scaled_dot_product_attention", F.scaled_dot_product_attention)
    monkeypatch.setattr(torch, "matmul", torch.matmul)
    assert use_our_libraries() == library
    assert (F.scaled_dot_product_attention is attention_by_mkl) == (library == "onednn")
    assert (torch.matmul is matmul_by_mkl) == (library == "onednn")


def test_the_choice_is_that_of_training():
    assert use_our_libraries("vendor_id: GenuineIntel") == choose_matmul("vendor_id: GenuineIntel") == "mkl"
