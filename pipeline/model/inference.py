"""The feed-forward part of a layer at one decoding step: few tokens, no gradient, no statistics.

Routing is that of evaluation. T tokens, M model, E experts, K choices of a token.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.model.feed_forward import FeedForward
from pipeline.model.moe.dispatch import combine, dispatch
from pipeline.model.moe.gates.choices import top_k
from pipeline.model.moe.gates.token_choice import shares
from pipeline.model.moe.layer import MoE
from pipeline.model.moe.route import Route, ragged_route
from pipeline.model.moe.routers import DroplessRouter, TaskRouter, Top1Router, Top2Router
from pipeline.model.moe.routing import Routing
from pipeline.model.moe.tokens import Tokens
from pipeline.model.precision import at_least_float32, outside_autocast
from pipeline.model.transformer import Layer


def feed_forward(layer: Layer, y_TM: Tensor, live_T: Tensor | None, pair_T: Tensor | None = None) -> Tensor:
    """Return `Layer.transform` without statistics.

    live_T: False for tokens that get no expert; None is all True.
    pair_T: index of each token's language pair, for gates that choose by task.
    """
    network = layer.feed_forward
    if isinstance(network, FeedForward):
        dense_TM: Tensor = network(y_TM)
        return dense_TM
    if live_T is None:
        live_T = torch.ones(len(y_TM), dtype=torch.bool, device=y_TM.device)
    if network.drops is not None:  # experts have a capacity, and its drops are counted
        limited_TM, _ = layer.transform(y_TM, Tokens.of_mask(live_T.unsqueeze(1)))
        return limited_TM
    route = choose_route(network, y_TM, live_T, pair_T)
    rows_XM = network.experts(dispatch(y_TM, route), route.counts_E)
    expert_TM = network.scaled(combine(rows_XM, route))
    if network.shared_experts is not None:
        expert_TM = expert_TM + network.shared_experts(y_TM).to(expert_TM.dtype)
    if network.conditional is None:
        return expert_TM
    gate_GS, _ = network.conditional.gate(y_TM.unsqueeze(0), live_T.unsqueeze(0))
    mixed_TM: Tensor = network.conditional(y_TM, expert_TM, gate_GS.squeeze(0))
    return mixed_TM


def choose_route(network: MoE, y_TM: Tensor, live_T: Tensor, pair_T: Tensor | None = None) -> Route:
    """Return the route of the tokens. Gates that only compare scores take a short way without statistics."""
    cut = network.experts.waits(y_TM)
    router, y_TM = network.router, at_least_float32(y_TM)
    if type(router) is TaskRouter:
        assert pair_T is not None
        expert_TK = router.experts_of(pair_T)
        return _route(expert_TK, torch.ones_like(expert_TK, dtype=y_TM.dtype), live_T, network.num_experts, cut=cut)
    with outside_autocast(y_TM):
        # exact types, because a subclass may route in another way
        if not (type(router) is Top1Router or type(router) is Top2Router or type(router) is DroplessRouter):
            tokens = Tokens.of_mask(live_T.unsqueeze(1))
            routing: Routing = router(y_TM.unsqueeze(0), tokens)
            return routing.decision.route(cut=cut)
        gates_TE = F.linear(y_TM, router.wg_EM).softmax(dim=-1)
        expert_TK = top_k(gates_TE, router.config.k)
        gate_TK = gates_TE.gather(-1, expert_TK)
        weight_TK = gate_TK if type(router) is Top1Router else shares(gate_TK)
    return _route(expert_TK, weight_TK, live_T, gates_TE.shape[1], cut=cut)


def _route(expert_TK: Tensor, weight_TK: Tensor, live_T: Tensor, num_experts: int, *, cut: bool) -> Route:
    kept_1TK = live_T.unsqueeze(1).expand_as(expert_TK).unsqueeze(0)
    weight_1TK = weight_TK.unsqueeze(0) * kept_1TK
    return ragged_route(expert_TK.unsqueeze(0), kept_1TK, weight_1TK, num_experts=num_experts, cut=cut)
