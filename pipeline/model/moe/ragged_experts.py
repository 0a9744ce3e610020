"""Experts with different numbers of rows on a GPU: y = relu(x · wi[e]) · wo[e], or gated, for sorted rows.

E experts, X rows of all experts, Y rows of the fullest expert, M model, H hidden, Z = E·Y padded rows.
One kernel for all experts is fastest. torch has it for bfloat16 on compute capabilities 9.x and 10.x. Elsewhere its
grouped product is a loop over experts that waits for the counts. The other two ways are then ours: experts padded to
the fullest one, or a loop.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from pipeline.model.activations import activate

GROUPED_CAPABILITIES = (9, 10)  # major numbers for which torch groups products in one kernel
GROUPED_EXPERTS = 1023  # the most that the kernel takes
UNWRITTEN_CAPABILITY = (10, 0)  # from here on that kernel leaves weight gradients of empty groups unwritten

# Multiply-adds that a GPU does in float32 while it starts a kernel: 5 µs at 50 TFLOP/s, by estimate.
KERNEL_START = 1 << 27
# Rows whose products take as long as reading the weights of an expert without rows. By estimate.
EMPTY_ROWS = 32


def can_group(device: torch.device, dtype: torch.dtype, wi_EMH: Tensor) -> bool:
    """Tell if torch computes all experts in one kernel there, without waiting for the counts of their rows.

    dtype: of the rows. The weights may have another one.
    """
    E, M, H = wi_EMH.shape
    if device.type != "cuda" or dtype != torch.bfloat16 or E > GROUPED_EXPERTS:
        return False
    if M % 8 or H % 8:  # it wants rows of 16 bytes
        return False
    return torch.cuda.get_device_capability(device)[0] in GROUPED_CAPABILITIES


def leaves_unwritten(device: torch.device) -> bool:
    """Tell if the grouped product leaves weight gradients of experts without rows unwritten (pytorch issue 172439)."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= UNWRITTEN_CAPABILITY


def inner_weights(wi_EMH: Tensor, wu_EMH: Tensor | None) -> tuple[Tensor, ...]:
    """Return the weights before the activation. wu_EMH: of gated experts, else None."""
    return (wi_EMH,) if wu_EMH is None else (wi_EMH, wu_EMH)


def feed_forward_grouped(
    rows_XM: Tensor, wi_EMH: Tensor, wo_EHM: Tensor, counts_E: Tensor, wu_EMH: Tensor | None = None
) -> Tensor:
    """Apply experts to ragged rows in bfloat16 without waiting for the counts. M and H are multiples of 8."""
    end_E = counts_E.to(rows_XM.device).cumsum(0, dtype=torch.int32)
    empty_E = counts_E.to(rows_XM.device) == 0 if leaves_unwritten(rows_XM.device) else None
    h_XH = activate(
        *(_grouped_product(rows_XM, w_EMH.to(rows_XM.dtype), end_E, empty_E) for w_EMH in inner_weights(wi_EMH, wu_EMH))
    )
    return _grouped_product(h_XH, wo_EHM.to(rows_XM.dtype), end_E, empty_E)


def _grouped_product(x_XM: Tensor, weight_EMH: Tensor, end_E: Tensor, empty_E: Tensor | None) -> Tensor:
    y_XH: Tensor = GroupedProduct.apply(x_XM, weight_EMH, end_E, empty_E)  # type: ignore[no-untyped-call]
    return y_XH


class GroupedProduct(torch.autograd.Function):
    """torch's grouped product, with the gradients that it should have.

    It refuses gradients with a stride of 0, such as that of a sum, and a product without any rows.
    """

    @staticmethod
    def forward(ctx: Any, x_XM: Tensor, weight_EMH: Tensor, end_E: Tensor, empty_E: Tensor | None) -> Tensor:
        """Return x · weight[e]. end_E: end of each expert's rows, int32. empty_E: experts whose gradient is zeroed."""
        x_XM = x_XM.contiguous()
        ctx.save_for_backward(x_XM, weight_EMH, end_E, empty_E)
        return F.grouped_mm(x_XM, weight_EMH, offs=end_E) if len(x_XM) else x_XM.new_empty(0, weight_EMH.shape[2])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x_XM, weight_EMH, end_E, empty_E = ctx.saved_tensors
        dy_XH = grads[0].contiguous()
        need_x, need_weight = ctx.needs_input_grad[:2]
        if not len(x_XM):
            return torch.zeros_like(x_XM), torch.zeros_like(weight_EMH), None, None
        dx_XM = F.grouped_mm(dy_XH, weight_EMH.mT, offs=end_E) if need_x else None
        dweight_EMH = F.grouped_mm(x_XM.mT, dy_XH, offs=end_E) if need_weight else None
        if dweight_EMH is not None and empty_E is not None:
            dweight_EMH.masked_fill_(empty_E.view(-1, 1, 1), 0)
        return dx_XM, dweight_EMH, None, None


def feed_forward_ragged(
    rows_XM: Tensor, wi_EMH: Tensor, wo_EHM: Tensor, counts_E: Tensor, wu_EMH: Tensor | None = None
) -> Tensor:
    """Apply experts to ragged rows in any dtype. Waits for the counts."""
    counts = counts_on_host(counts_E, len(rows_XM))
    # cast at once, not expert by expert
    wo_EHM, *inner_EMH = (weight.to(rows_XM.dtype) for weight in (wo_EHM, *inner_weights(wi_EMH, wu_EMH)))
    if padding_pays(counts, wi_EMH.shape[1] * wi_EMH.shape[2]):
        return feed_forward_padded(rows_XM, inner_EMH[0], wo_EHM, counts_E, max(counts), *inner_EMH[1:])
    # unbind, because each wi_EMH[e] would have a gradient of the full size
    experts = zip(torch.split(rows_XM, counts), *(weight.unbind() for weight in (wo_EHM, *inner_EMH)), strict=True)
    return torch.cat([activate(*(x_YM @ w_MH for w_MH in inner_MH)) @ wo_HM for x_YM, wo_HM, *inner_MH in experts])


def padding_pays(counts: list[int], weight_elements: int) -> bool:
    """Tell if experts padded to the fullest one take less time than one product after the other.

    weight_elements: M · H. A loop starts kernels for each expert with rows. Padding multiplies rows that are empty.
    """
    empty = counts.count(0)
    wasted_rows = max(counts) * len(counts) - sum(counts) + EMPTY_ROWS * empty
    return max(counts) > 0 and wasted_rows * weight_elements <= (len(counts) - empty) * KERNEL_START


def feed_forward_padded(
    rows_XM: Tensor, wi_EMH: Tensor, wo_EHM: Tensor, counts_E: Tensor, fullest: int, wu_EMH: Tensor | None = None
) -> Tensor:
    """Apply experts to ragged rows, each padded to the rows of the fullest one. Weights have the dtype of the rows."""
    E, M, X = *wi_EMH.shape[:2], len(rows_XM)
    counts_E = counts_E.to(rows_XM.device)
    shift_E = torch.arange(0, E * fullest, fullest, device=rows_XM.device) - (counts_E.cumsum(0) - counts_E)
    slot_X = torch.arange(X, device=rows_XM.device) + shift_E.repeat_interleave(counts_E, output_size=X)
    padded_EYM = rows_XM.new_zeros(E * fullest, M).index_copy(0, slot_X, rows_XM).view(E, fullest, M)
    h_EYH = activate(*(torch.bmm(padded_EYM, w_EMH) for w_EMH in inner_weights(wi_EMH, wu_EMH)))
    y_EYM = torch.bmm(h_EYH, wo_EHM)
    y_XM: Tensor = Unpad.apply(y_EYM.flatten(0, 1), slot_X)  # type: ignore[no-untyped-call]
    return y_XM


class Unpad(torch.autograd.Function):
    """Takes rows out of padded rows. No row is taken twice, so the gradient is a copy, where torch's own adds."""

    @staticmethod
    def forward(ctx: Any, padded_ZM: Tensor, slot_X: Tensor) -> Tensor:
        ctx.save_for_backward(slot_X)
        ctx.num_padded = len(padded_ZM)
        return padded_ZM.index_select(0, slot_X)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        zeros_ZM = grads[0].new_zeros(ctx.num_padded, grads[0].shape[1])
        return zeros_ZM.index_copy_(0, ctx.saved_tensors[0], grads[0]), None


def counts_on_host(counts_E: Tensor, num_rows: int) -> list[int]:
    """Return the counts as a list. Raises ValueError if one is negative or their sum is not `num_rows`."""
    counts: list[int] = counts_E.tolist()
    if min(counts) < 0 or sum(counts) != num_rows:
        raise ValueError(f"counts_E={counts} must be at least 0 and sum to the {num_rows} rows")
    return counts
