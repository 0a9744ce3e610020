"""The cases of our own layer; no other module of this benchmark uses it.

G groups (one), S tokens, M model, E experts, X rows of experts.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.moe.case import Case, Place
from bench.moe.size import Size
from pipeline.model.config import MoEConfig
from pipeline.model.moe.dispatch import combine, dispatch
from pipeline.model.moe.gates.config import GATES as RECORDS
from pipeline.model.moe.gates.config import GateConfig, Top2Config
from pipeline.model.moe.gates.token_choice import top2_gating
from pipeline.model.moe.layer import MoE
from pipeline.model.moe.tokens import Tokens

TOP2 = Top2Config(second="all")  # every second choice, as the peers keep it
GATES = {kind: gate() for kind, gate in RECORDS.items() if kind != "top2"}
PAIRS = ["de:en", "en:de"]  # a gate by task needs tasks; all tokens are of the first


class NoExperts(nn.Module):
    """Experts that return their rows unchanged, so that a layer has only gate, dispatch, combine and statistics."""

    def forward(self, rows_XM: Tensor, *_: Any) -> Tensor:
        return rows_XM

    def waits(self, x: Tensor) -> bool:
        """Return what experts in float32 say, so that the route is theirs."""
        return True


def layer(
    size: Size, place: Place, *, gate: GateConfig = TOP2, compiled: bool = False, with_experts: bool = True
) -> Case:
    """Return our MoE layer in training mode. The router is float32 even if experts are bfloat16."""
    with torch.device(place.device):
        config = MoEConfig(num_experts=size.experts, expert_dim=size.hidden, encoder_gate=gate).with_pairs(PAIRS)
        moe = MoE(size.model, config)
    if not with_experts:
        moe.experts = NoExperts()  # type: ignore[assignment]
    moe.train()
    for seed, (name, parameter) in enumerate(moe.named_parameters(), start=2):
        values = place.uniform(*parameter.shape, fan_in=size.hidden if name.endswith("_EHM") else size.model, seed=seed)
        parameter.data = values if name.startswith("experts.") else values.float()
    x_SM = place.tokens(size)
    tokens = all_tokens(size, place)
    run = torch.compile(moe, dynamic=False) if compiled else moe

    def forward() -> tuple[Tensor, ...]:
        y_GSM, statistics = run(x_SM.unsqueeze(0), tokens)
        return y_GSM, statistics.loss

    flops = size.flops * gate.experts_per_token / size.k if with_experts else 0.0
    return Case(forward=forward, weights=list(moe.parameters()), inputs=[x_SM], flops=flops, place=place)


def all_tokens(size: Size, place: Place) -> Tokens:
    """Return the tokens of one group without padding."""
    return Tokens.of_mask(torch.ones(1, size.tokens, dtype=torch.bool, device=place.device))


def part(size: Size, place: Place, *, name: str) -> Case:
    """Return one part of the layer alone: the router's matmul, the gate with its maps, dispatch, or combine."""
    x_SM = place.tokens(size)
    wg_EM = place.uniform(size.experts, size.model, fan_in=size.model, seed=2).float().requires_grad_()
    valid_GS = all_tokens(size, place).valid_GS
    logits_GSE = F.linear(x_SM.detach().float(), wg_EM.detach()).unsqueeze(0).requires_grad_()
    route = top2_gating(logits_GSE.detach(), size.capacity, valid_GS=valid_GS).route()
    rows_XM = place.uniform(size.experts * size.capacity, size.model).requires_grad_()

    def router() -> tuple[Tensor, ...]:
        with torch.autocast(place.device, enabled=False):
            return (F.linear(x_SM.float(), wg_EM),)

    def gate() -> tuple[Tensor, ...]:
        gating = top2_gating(logits_GSE, size.capacity, valid_GS=valid_GS)
        return gating.route().weight_N, gating.aux_loss

    forwards: dict[str, tuple[Callable[[], tuple[Tensor, ...]], list[Tensor]]] = {
        "router": (router, [x_SM, wg_EM]),
        "gate": (gate, [logits_GSE]),
        "dispatch": (lambda: (dispatch(x_SM, route),), [x_SM]),
        "combine": (lambda: (combine(rows_XM, route),), [rows_XM]),
    }
    forward, inputs = forwards[name]
    return Case(forward=forward, weights=[], inputs=inputs, flops=0.0, place=place)
