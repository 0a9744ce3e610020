"""The maps between tokens and rows of experts that follow from a gate's decision.

G groups, S tokens of a group, E experts, C capacity, K choices of a token, T tokens (G·S), N assignments of a token to
an expert in the order of tokens, X rows of experts in the order of experts.
With a capacity, X = E·G·C and a row may be empty. Without one, each assignment has a row. There are no others on a CPU;
a GPU that need not wait for their number gives void assignments rows too.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Route:
    """Two maps, each the inverse of the other, so that forward and backward use gathers only.

    row_N: row of each assignment; any row for a void one.
    live_N: 1.0 for an assignment, 0.0 for a void one.
    offset_T: first assignment of each token.
    weight_N: combine weights, 0 for a void assignment, with the router's gradient.
    token_X: token of each row. An empty row has token 0, and nothing reads its output.
    weight_X: combine weight of each row, 0 for an empty row and that of a void assignment, without gradient.
    counts_E: rows of each expert, or None if all experts have the same number.
    """

    row_N: Tensor
    live_N: Tensor
    offset_T: Tensor
    weight_N: Tensor
    token_X: Tensor
    weight_X: Tensor
    counts_E: Tensor | None


def fixed_route(
    expert_GSK: Tensor, position_GSK: Tensor, kept_GSK: Tensor, weight_GSK: Tensor, *, num_experts: int, capacity: int
) -> Route:
    """Return the route to rows [E, G, C], one row for each slot of an expert. position_GSK: slot of a kept choice."""
    G, S, K = expert_GSK.shape
    group_G11 = torch.arange(0, G * capacity, capacity, device=expert_GSK.device).view(G, 1, 1)
    row_N = (position_GSK + group_G11).add_(expert_GSK, alpha=G * capacity).flatten()
    live_N = kept_GSK.flatten()
    void_N = ~live_N
    num_rows = num_experts * G * capacity
    target_N = row_N.masked_fill(void_N, num_rows)  # void assignments write to one more row, which is cut off
    token_N = torch.arange(G * S * K, device=row_N.device) // K
    weight_N = weight_GSK.flatten()
    return Route(
        row_N=row_N.masked_fill_(void_N, 0),
        live_N=live_N.to(weight_N.dtype),
        offset_T=torch.arange(0, G * S * K, K, device=row_N.device),
        weight_N=weight_N,
        token_X=row_N.new_zeros(num_rows + 1).scatter_(0, target_N, token_N)[:-1],
        weight_X=weight_N.new_zeros(num_rows + 1).scatter_(0, target_N, weight_N.detach())[:-1],
        counts_E=None,
    )


def ragged_route(
    expert_GSK: Tensor, kept_GSK: Tensor, weight_GSK: Tensor, *, num_experts: int, cut: bool = True
) -> Route:
    """Return the route to one row per kept choice, by expert and then by token.

    cut: choices that are not kept have no row, which waits for the number of rows from the device. Otherwise their
        experts compute them, with a weight of 0.
    """
    G, S, K = expert_GSK.shape
    live_N = kept_GSK.flatten()
    bucket_N = expert_GSK.flatten()
    if cut:
        bucket_N = bucket_N.masked_fill(~live_N, num_experts)
    counts_E = count_by_expert(bucket_N, num_experts)
    order_X = bucket_N.argsort(stable=True)
    if cut:
        order_X = order_X[: int(counts_E.sum())]
    weight_N = weight_GSK.flatten()
    rows_X = torch.arange(len(order_X), device=order_X.device)
    return Route(
        row_N=torch.zeros_like(bucket_N).scatter_(0, order_X, rows_X),
        live_N=live_N.to(weight_N.dtype),
        offset_T=torch.arange(0, G * S * K, K, device=order_X.device),
        weight_N=weight_N,
        token_X=order_X // K,
        weight_X=weight_N.detach()[order_X],
        counts_E=counts_E,
    )


def count_by_expert(expert_N: Tensor, num_experts: int) -> Tensor:
    """Count each expert, [E]. Numbers from E on count for none. `bincount` would wait for the device."""
    counts_E = expert_N.new_zeros(num_experts + 1)
    return counts_E.scatter_add_(0, expert_N, torch.ones_like(expert_N))[:num_experts]


def selected_route(
    token_X: Tensor, filled_X: Tensor, weight_X: Tensor, *, num_tokens: int, counts_E: Tensor | None
) -> Route:
    """Return the route where experts choose: token and weight of each row. filled_X: False for an empty row."""
    token_X = token_X.masked_fill(~filled_X, num_tokens)
    row_N = token_X.argsort(stable=True)  # empty rows come last, as void assignments of the last token
    weight_X = weight_X * filled_X
    load = token_X.new_zeros(num_tokens + 1).scatter_add_(0, token_X, torch.ones_like(token_X))[:num_tokens]
    return Route(
        row_N=row_N,
        live_N=filled_X[row_N].to(weight_X.dtype),
        offset_T=load.cumsum(0) - load,
        weight_N=weight_X[row_N],
        token_X=token_X.masked_fill(~filled_X, 0),
        weight_X=weight_X.detach(),
        counts_E=counts_E,
    )
