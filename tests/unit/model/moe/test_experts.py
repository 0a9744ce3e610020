"""Stacked experts against plain autograd of their formulas, expert by expert."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.model.config import Activation
from pipeline.model.moe import experts as module
from pipeline.model.moe.experts import Experts

E, M, H = 4, 8, 16
ACTIVATIONS = ["relu", "swiglu"]
COUNTS = {"equal": None, "ragged": [5, 0, 1, 6], "last empty": [3, 9, 0, 0], "no rows": [0, 0, 0, 0]}


def build(dtype: torch.dtype = torch.float64, activation: Activation = "relu") -> Experts:
    generator = torch.Generator().manual_seed(1)
    experts = Experts(E, M, H, activation).to(dtype)
    for parameter in experts.parameters():
        torch.nn.init.normal_(parameter, std=0.5, generator=generator)
    return experts


def draw(num_rows: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(num_rows, M, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()


def plain(experts: Experts, rows_XM: Tensor, counts: list[int] | None) -> Tensor:
    """Return the experts' outputs by linear layers, so that autocast treats them as it treats those."""
    rows = rows_XM.split(counts or [len(rows_XM) // E] * E)
    outputs = []
    for expert, x_YM in enumerate(rows):
        h_YH = F.linear(x_YM, experts.wi_EMH[expert].T)
        h_YH = h_YH.relu() if experts.wu_EMH is None else F.silu(h_YH) * F.linear(x_YM, experts.wu_EMH[expert].T)
        outputs.append(F.linear(h_YH, experts.wo_EHM[expert].T))
    return torch.cat(outputs)


def gradients(experts: Experts, rows_XM: Tensor, y_XM: Tensor) -> list[Tensor]:
    inputs = [rows_XM, *experts.parameters()]
    weight_XM = torch.linspace(-1, 1, y_XM.numel(), dtype=y_XM.dtype).view_as(
        y_XM
    )  # a different gradient for every output
    return list(torch.autograd.grad((y_XM * weight_XM).sum(), inputs))


def counts_tensor(counts: list[int] | None) -> Tensor | None:
    return None if counts is None else torch.tensor(counts)


def num_rows(counts: list[int] | None) -> int:
    return 12 if counts is None else sum(counts)


@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
@pytest.mark.parametrize("block", [1, 3 * H * 3, 1 << 22], ids=["one by one", "three and one", "together"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_equals_plain_autograd(
    counts: list[int] | None, block: int, activation: Activation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK_HIDDEN", block)
    experts, rows_XM = build(activation=activation), draw(num_rows(counts))
    y_XM, expected_XM = experts(rows_XM, counts_tensor(counts)), plain(experts, rows_XM, counts)
    # float64: only the order of sums may differ
    torch.testing.assert_close(y_XM, expected_XM, rtol=0, atol=1e-12)
    for gradient, expected in zip(
        gradients(experts, rows_XM, y_XM), gradients(experts, rows_XM, expected_XM), strict=True
    ):
        torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-12)
        assert gradient.is_contiguous()


@pytest.mark.parametrize("counts", [None, [2, 0, 1, 1]], ids=["equal", "ragged"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradcheck(counts: list[int] | None, activation: Activation) -> None:
    experts, rows_XM = build(activation=activation), draw(4)
    names = [name for name, _ in experts.named_parameters()]

    def function(rows_XM: Tensor, *weights: Tensor) -> Tensor:
        parameters = dict(zip(names, weights, strict=True))
        y_XM: Tensor = torch.func.functional_call(experts, parameters, (rows_XM, counts_tensor(counts)))
        return y_XM

    assert torch.autograd.gradcheck(function, (rows_XM, *experts.parameters()))


@pytest.mark.parametrize("counts", [None, [5, 0, 1, 6]], ids=["equal", "ragged"])
@pytest.mark.parametrize("cast", [1, 1 << 20], ids=["one by one", "together"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_autocast_computes_in_bfloat16_as_linear_does(
    counts: list[int] | None, cast: int, activation: Activation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK_CAST", cast)
    experts, rows_XM = build(torch.float32, activation), draw(12, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y_XM, expected_XM = experts(rows_XM, counts_tensor(counts)), plain(experts, rows_XM, counts)
    assert y_XM.dtype == expected_XM.dtype == torch.bfloat16
    # the same roundings to 8 bits, up to the order of sums before them
    torch.testing.assert_close(y_XM, expected_XM, rtol=2**-7, atol=2**-7)
    for gradient, expected in zip(
        gradients(experts, rows_XM, y_XM), gradients(experts, rows_XM, expected_XM), strict=True
    ):
        assert gradient.dtype == expected.dtype == torch.float32
        torch.testing.assert_close(gradient, expected, rtol=2**-6, atol=2**-6 * float(expected.abs().max()))


def test_autocast_leaves_float64_alone() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert build()(draw(12)).dtype == torch.float64


FROZEN = ["rows", "wi_EMH", "wo_EHM", "rows wi_EMH", "rows wo_EHM", "wi_EMH wo_EHM"]
FROZEN_GATED = ["rows", "wi_EMH", "wu_EMH", "wo_EHM", "wi_EMH wu_EMH", "rows wi_EMH wu_EMH", "rows wu_EMH wo_EHM"]


@pytest.mark.parametrize(
    ("activation", "frozen"),
    [*(("relu", frozen) for frozen in FROZEN), *(("swiglu", frozen) for frozen in FROZEN_GATED)],
)
def test_frozen_inputs_get_no_gradient_and_change_no_other(activation: Activation, frozen: str) -> None:
    experts, rows_XM = build(activation=activation), draw(12)
    expected_gradients = gradients(experts, rows_XM, experts(rows_XM))
    tensors = {"rows": rows_XM, **dict(experts.named_parameters())}
    for name in frozen.split():
        tensors[name].requires_grad_(False)
    y_XM = experts(rows_XM)
    (y_XM * torch.linspace(-1, 1, y_XM.numel(), dtype=y_XM.dtype).view_as(y_XM)).sum().backward()
    for (name, tensor), expected in zip(tensors.items(), expected_gradients, strict=True):
        if name in frozen.split():
            assert tensor.grad is None
        else:
            torch.testing.assert_close(tensor.grad, expected, rtol=0, atol=0)


@pytest.mark.parametrize("counts", [None, [5, 0, 1, 6]], ids=["equal", "ragged"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_without_gradient_hidden_activations_are_not_kept(counts: list[int] | None, activation: Activation) -> None:
    experts, rows_XM, counts_E = build(activation=activation), draw(12), counts_tensor(counts)
    with torch.no_grad():
        y_XM = experts(rows_XM, counts_E)
    assert not y_XM.requires_grad
    torch.testing.assert_close(y_XM, experts(rows_XM, counts_E).detach(), rtol=0, atol=0)


def test_gradients_accumulate_over_passes() -> None:
    experts, rows_XM = build(), draw(12)
    experts(rows_XM).sum().backward()
    once = experts.wi_EMH.grad.clone()
    experts(rows_XM).sum().backward()
    torch.testing.assert_close(experts.wi_EMH.grad, 2 * once, rtol=0, atol=1e-12)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_equal_blocks_of_other_devices_agree(activation: Activation) -> None:
    experts, rows_XM = build(activation=activation), draw(12)
    y_XM = module.feed_forward_equal(rows_XM, experts.wi_EMH, experts.wo_EHM, experts.wu_EMH)
    expected_XM = experts(rows_XM)
    torch.testing.assert_close(y_XM, expected_XM, rtol=0, atol=1e-12)
    for gradient, expected in zip(
        gradients(experts, rows_XM, y_XM), gradients(experts, rows_XM, expected_XM), strict=True
    ):
        torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-12)


def test_exchange_gets_the_computation_and_its_arguments() -> None:
    experts, rows_XM, counts_E = build(), draw(12), torch.tensor([5, 0, 1, 6])
    expected_XM = experts(rows_XM, counts_E)
    experts.exchange = lambda compute, rows_XM, counts_E: 2 * compute(rows_XM, counts_E)
    torch.testing.assert_close(experts(rows_XM, counts_E), 2 * expected_XM, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        (None, "13 rows do not divide by 4 experts"),
        ([5, 0, 1, 6], "sum to the 13 rows"),
        ([14, 0, -1, 0], "at least 0"),
        ([13], "one count per expert"),
    ],
)
def test_counts_must_fit(counts: list[int] | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()(draw(13), counts_tensor(counts))
