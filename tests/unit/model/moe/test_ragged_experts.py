"""Experts with different numbers of rows as a GPU computes them, run on a CPU and compared with the CPU's own way."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from pipeline.model.config import Activation
from pipeline.model.moe import ragged_experts as module
from pipeline.model.moe.experts import Experts

M, H = 8, 16
COUNTS = {"ragged": [5, 0, 1, 6], "last empty": [3, 9, 0, 0], "one expert": [0, 12, 0, 0], "no rows": [0, 0, 0, 0]}
# of the largest number: another order of sums, and the roundings of 10 and 8 bits of mantissa
TOLERANCE = {torch.float64: 1e-14, torch.float32: 1e-6, torch.float16: 2**-8, torch.bfloat16: 2**-6}

Path = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor | None], Tensor]


def padded(rows_XM: Tensor, wi_EMH: Tensor, wo_EHM: Tensor, counts_E: Tensor, wu_EMH: Tensor | None) -> Tensor:
    wi_EMH, wo_EHM = wi_EMH.to(rows_XM.dtype), wo_EHM.to(rows_XM.dtype)
    wu_EMH = None if wu_EMH is None else wu_EMH.to(rows_XM.dtype)
    return module.feed_forward_padded(rows_XM, wi_EMH, wo_EHM, counts_E, max(1, int(counts_E.max())), wu_EMH)


def one_by_one(rows_XM: Tensor, wi_EMH: Tensor, wo_EHM: Tensor, counts_E: Tensor, wu_EMH: Tensor | None) -> Tensor:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "KERNEL_START", -1)  # no padding is worth it
        return module.feed_forward_ragged(rows_XM, wi_EMH, wo_EHM, counts_E, wu_EMH)


def build(num_experts: int, dtype: torch.dtype, activation: Activation = "relu") -> Experts:
    generator = torch.Generator().manual_seed(1)
    experts = Experts(num_experts, M, H, activation).to(dtype)
    for parameter in experts.parameters():
        torch.nn.init.normal_(parameter, std=0.5, generator=generator)
    return experts


def draw(num_rows: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(num_rows, M, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()


def gradients(experts: Experts, rows_XM: Tensor, y_XM: Tensor) -> list[Tensor]:
    weight_XM = torch.linspace(-1, 1, y_XM.numel(), dtype=y_XM.dtype).view_as(y_XM)
    return list(torch.autograd.grad((y_XM * weight_XM).sum(), [rows_XM, *experts.parameters()]))


def assert_agrees(
    path: Path, counts: list[int], rows: torch.dtype, weights: torch.dtype, activation: Activation
) -> None:
    experts, rows_XM, counts_E = build(len(counts), weights, activation), draw(sum(counts), rows), torch.tensor(counts)
    y_XM = path(rows_XM, experts.wi_EMH, experts.wo_EHM, counts_E, experts.wu_EMH)
    expected_XM = experts.compute(rows_XM, counts_E)
    results = [y_XM, *gradients(experts, rows_XM, y_XM)]
    expected_results = [expected_XM, *gradients(experts, rows_XM, expected_XM)]
    for result, expected in zip(results, expected_results, strict=True):
        largest = float(expected.detach().abs().max()) if expected.numel() else 0.0
        torch.testing.assert_close(result, expected, rtol=0, atol=TOLERANCE[rows] * largest)


@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
@pytest.mark.parametrize("path", [padded, one_by_one, module.feed_forward_ragged], ids=lambda path: path.__name__)
@pytest.mark.parametrize("rows", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("activation", ["relu", "swiglu"])
def test_any_dtype_agrees(path: Path, counts: list[int], rows: torch.dtype, activation: Activation) -> None:
    assert_agrees(path, counts, rows, torch.promote_types(rows, torch.float32), activation)


@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("activation", ["relu", "swiglu"])
def test_grouped_product_agrees(counts: list[int], weights: torch.dtype, activation: Activation) -> None:
    assert_agrees(module.feed_forward_grouped, counts, torch.bfloat16, weights, activation)


def test_grouped_product_takes_the_gradient_of_a_sum() -> None:
    """The gradient of a sum has strides of 0, which torch's grouped product refuses."""
    experts, rows_XM, counts_E = build(4, torch.bfloat16), draw(12, torch.bfloat16), torch.tensor([5, 0, 1, 6])
    module.feed_forward_grouped(rows_XM, experts.wi_EMH, experts.wo_EHM, counts_E).sum().backward()
    assert rows_XM.grad is not None
    assert rows_XM.grad.isfinite().all()


@pytest.mark.parametrize("frozen", ["rows", "wi_EMH", "wo_EHM"])
def test_grouped_product_leaves_frozen_inputs_alone(frozen: str) -> None:
    experts, rows_XM, counts_E = build(4, torch.bfloat16), draw(12, torch.bfloat16), torch.tensor([5, 0, 1, 6])
    tensors = {"rows": rows_XM, "wi_EMH": experts.wi_EMH, "wo_EHM": experts.wo_EHM}
    tensors[frozen].requires_grad_(False)
    module.feed_forward_grouped(rows_XM, experts.wi_EMH, experts.wo_EHM, counts_E).sum().backward()
    assert [name for name, tensor in tensors.items() if tensor.grad is None] == [frozen]


@pytest.mark.parametrize("unwritten", [False, True])
def test_experts_without_rows_get_no_gradient_where_torch_leaves_it_unwritten(
    unwritten: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The grouped product here leaves the defect that pytorch issue 172439 reports of compute capability 10.0."""
    grouped_mm = torch.nn.functional.grouped_mm

    def defective(a: Tensor, b: Tensor, *, offs: Tensor) -> Tensor:
        product = grouped_mm(a, b, offs=offs)
        if a.dim() == b.dim() == 2:
            product[offs.diff(prepend=offs.new_zeros(1)) == 0] = 7.0
        return product

    monkeypatch.setattr(torch.nn.functional, "grouped_mm", defective)
    monkeypatch.setattr(module, "leaves_unwritten", lambda device: unwritten)
    experts, rows_XM, counts_E = build(4, torch.float32), draw(12, torch.bfloat16), torch.tensor([0, 5, 7, 0])
    y_XM = module.feed_forward_grouped(rows_XM, experts.wi_EMH, experts.wo_EHM, counts_E)
    _, *weight_gradients = gradients(experts, rows_XM, y_XM)
    for gradient in weight_gradients:
        assert bool((gradient[[0, 3]] == 7.0).all()) is not unwritten
        assert bool((gradient[[0, 3]] == 0.0).all()) is unwritten
        assert gradient[[1, 2]].abs().sum() > 0


@pytest.mark.parametrize(
    ("capability", "dtype", "dim", "hidden", "groups", "zeroes"),
    [
        ((9, 0), torch.bfloat16, 8, 16, True, False),
        ((10, 0), torch.bfloat16, 8, 16, True, True),
        ((12, 0), torch.bfloat16, 8, 16, False, True),
        ((8, 0), torch.bfloat16, 8, 16, False, False),
        ((9, 0), torch.float16, 8, 16, False, False),
        ((9, 0), torch.float32, 8, 16, False, False),
        ((9, 0), torch.bfloat16, 12, 16, False, False),
        ((9, 0), torch.bfloat16, 8, 20, False, False),
    ],
)
def test_grouped_product_is_chosen_where_it_is_one_kernel(
    capability: tuple[int, int],
    dtype: torch.dtype,
    dim: int,
    hidden: int,
    groups: bool,
    zeroes: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
    assert module.can_group(torch.device("cuda", 0), dtype, torch.empty(4, dim, hidden)) is groups
    assert module.leaves_unwritten(torch.device("cuda", 0)) is zeroes
    assert not module.can_group(torch.device("cpu"), dtype, torch.empty(4, dim, hidden))


@pytest.mark.parametrize(("num_experts", "groups"), [(1023, True), (1024, False)])
def test_grouped_product_is_not_chosen_for_more_experts_than_its_kernel_takes(
    num_experts: int, groups: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    weights = torch.empty(num_experts, 8, 8, device="meta")
    assert module.can_group(torch.device("cuda", 0), torch.bfloat16, weights) is groups


class CountOperators(TorchDispatchMode):
    """Counts the operators that would each start a kernel on a GPU, so no views."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not any(result.alias_info is not None for result in func._schema.returns):
            self.calls[func._schema.name] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_kernels_do_not_grow_with_the_number_of_experts(dtype: torch.dtype) -> None:
    def count(num_experts: int) -> Counter[str]:
        counts = [2 + expert % 3 for expert in range(num_experts)]
        experts, rows_XM = build(num_experts, torch.float32), draw(sum(counts), dtype)
        with CountOperators() as operators:
            y_XM = module.feed_forward_ragged(rows_XM, experts.wi_EMH, experts.wo_EHM, torch.tensor(counts))
            gradients(experts, rows_XM, y_XM)
        return operators.calls

    assert count(4) == count(64)
    assert count(4)["aten::bmm"] == 6  # three for each of two products
    assert count(4).total() <= 40


@pytest.mark.parametrize(
    ("counts", "weight_elements", "pays"),
    [
        ([100, 110, 120, 130], 1 << 20, True),
        ([100, 110, 120, 130], 1 << 28, False),  # large products take longer than their kernels take to start
        ([1 << 20, 0, 0, 1], 1 << 20, False),  # one expert has nearly all rows: padded ones would not fit
        ([1, 1] + 126 * [0], 1 << 20, False),  # a decoding step: reading all weights takes longer
        ([4, 5] * 64, 1 << 22, True),
        ([0, 0], 1, False),
    ],
)
def test_padding_where_it_takes_less_time(counts: list[int], weight_elements: int, pays: bool) -> None:
    assert module.padding_pays(counts, weight_elements) is pays


@pytest.mark.parametrize("counts", [[5, 0, 1, 6], [14, 0, -1, 0]])
def test_counts_must_fit(counts: list[int]) -> None:
    experts = build(4, torch.float32)
    with pytest.raises(ValueError, match="at least 0 and sum to the 13 rows"):
        module.feed_forward_ragged(draw(13, torch.float32), experts.wi_EMH, experts.wo_EHM, torch.tensor(counts))
