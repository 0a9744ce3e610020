"""Moving tokens to the rows of experts and back. Forward and backward use gathers only.

T tokens, M model, N assignments of a token to an expert, X rows of experts (see `pipeline.model.moe.route`).
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.model.moe.route import Route

CHUNK = 512  # rows that a CPU processes at a time: so few that they stay in its cache between two operations


class Dispatch(torch.autograd.Function):
    """Maps x_TM to rows_XM: every row is a copy of its token."""

    @staticmethod
    def forward(ctx: Any, x_TM: Tensor, token_X: Tensor, row_N: Tensor, live_N: Tensor, offset_T: Tensor) -> Tensor:
        ctx.save_for_backward(row_N, live_N, offset_T)
        return x_TM.index_select(0, token_X)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:
        return gather_sum(grads[0], *ctx.saved_tensors), None, None, None, None


class Combine(torch.autograd.Function):
    """Maps rows_XM to y_TM: every token is the weighted sum of its rows, and zero if it has none."""

    @staticmethod
    def forward(
        ctx: Any,
        rows_XM: Tensor,
        weight_N: Tensor,
        row_N: Tensor,
        live_N: Tensor,
        offset_T: Tensor,
        token_X: Tensor,
        weight_X: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(rows_XM, row_N, live_N, token_X, weight_X)
        return gather_sum(rows_XM, row_N, weight_N, offset_T)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        rows_XM, row_N, live_N, token_X, weight_X = ctx.saved_tensors
        grad_TM, weight_X1 = grads[0], weight_X.to(rows_XM.dtype).unsqueeze(1)
        grad_XM, dot_X = torch.empty_like(rows_XM), torch.empty_like(rows_XM[:, 0])
        size = CHUNK if rows_XM.is_cpu else max(1, len(rows_XM))
        for part in (slice(start, start + size) for start in range(0, len(rows_XM), size)):
            grad_part = torch.index_select(grad_TM, 0, token_X[part], out=grad_XM[part])
            # both gradients read the same gathered rows, so the weights' gradient comes first and the rows' in place
            torch.linalg.vecdot(grad_part, rows_XM[part], out=dot_X[part])
            grad_part.mul_(weight_X1[part])
        grad_weight_N = dot_X[row_N].to(live_N.dtype) * live_N if len(dot_X) else torch.zeros_like(live_N)
        return grad_XM, grad_weight_N, None, None, None, None, None


def gather_sum(rows_XM: Tensor, row_N: Tensor, weight_N: Tensor, offset_T: Tensor) -> Tensor:
    """Return for each token the sum of weight_N · rows_XM[row_N] over its assignments, without a tensor [N, M]."""
    if not len(rows_XM):  # no token has an expert
        return rows_XM.new_zeros(len(offset_T), rows_XM.shape[1])
    return F.embedding_bag(row_N, rows_XM, offset_T, per_sample_weights=weight_N.to(rows_XM.dtype), mode="sum")


def dispatch(x_TM: Tensor, route: Route) -> Tensor:
    """Copy tokens [T, M] to the rows [X, M] of their experts."""
    if not torch.is_grad_enabled():
        return x_TM.index_select(0, route.token_X)
    rows_XM: Tensor = Dispatch.apply(x_TM, route.token_X, route.row_N, route.live_N, route.offset_T)  # type: ignore[no-untyped-call]
    return rows_XM


def combine(rows_XM: Tensor, route: Route) -> Tensor:
    """Sum the rows [X, M] of each token by its combine weights. Returns tokens [T, M]."""
    if not torch.is_grad_enabled():
        return gather_sum(rows_XM, route.row_N, route.weight_N, route.offset_T)
    maps = route.row_N, route.live_N, route.offset_T, route.token_X, route.weight_X
    y_TM: Tensor = Combine.apply(rows_XM, route.weight_N, *maps)  # type: ignore[no-untyped-call]
    return y_TM
