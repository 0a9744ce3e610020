"""The Mixture-of-Experts feed-forward layer, written for one device (GShard, arXiv:2006.16668, Algorithm 2).

G groups, S tokens of a group, M model, E experts, C capacity, X rows of experts, P language pairs, N assignments.
`pipeline.parallel` cuts E over devices from outside: it slices the experts' parameters and sets their `exchange`.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from pipeline.model.config import Activation, MoEConfig
from pipeline.model.feed_forward import FeedForward
from pipeline.model.moe.conditional import Conditional
from pipeline.model.moe.dispatch import combine, dispatch
from pipeline.model.moe.experts import Experts
from pipeline.model.moe.gates.expert_choice import Selection
from pipeline.model.moe.gates.token_choice import Gating
from pipeline.model.moe.routers import build_router
from pipeline.model.moe.routing import Queueing, Routing
from pipeline.model.moe.tokens import Tokens
from pipeline.model.precision import at_least_float32, outside_autocast


@dataclass(frozen=True, kw_only=True)
class MoEStatistics:
    """Statistics of one pass through one MoE layer. All are sums, so that micro-batches and processes add up.

    loss: auxiliary losses of the layer, weighted, summed over groups, with gradient.
    losses: each auxiliary loss by name, unweighted, without gradient. `balance` is E² · line 13 of GShard's Algorithm
        1, which is 1 when experts are used alike.
    tokens: real tokens.
    choices, kept: expert choices before and after capacity.
    unserved: tokens without any expert.
    rows: rows that experts multiplied, with empty slots.
    entropy: entropy of the router in nats, summed over `sampled` evenly spaced tokens.
    not_finite: router logits that are NaN or infinite.
    usage_PE: choices before capacity, by language pair and expert.
    """

    loss: Tensor
    losses: Mapping[str, Tensor]
    tokens: Tensor
    choices: Tensor
    kept: Tensor
    unserved: Tensor
    rows: Tensor
    entropy: Tensor
    sampled: Tensor
    not_finite: Tensor
    usage_PE: Tensor


Convert = Callable[[Tensor], Tensor]


def unchanged(tensor: Tensor) -> Tensor:
    return tensor


class Counting(Protocol):
    """A count of the choices that a capacity drops."""

    def add(self, decision: Gating | Selection) -> None: ...


class MoE(nn.Module):
    """A router, experts, and the dispatch between them.

    In training, experts may have a capacity and routing may be random. Evaluation draws nothing at random. It drops
    nothing unless `evaluation_capacity` sets a capacity.

    decoder: True for a layer of the decoder, which may have another gate.
    ffn_dim: hidden size of the shared network, for conditional routing.
    activation: of the experts and the shared networks.
    biases: True if the experts and the shared networks have biases.
    decisions: context in which the router runs, set by `pipeline.model.recompute`.
    enter: called on the tokens and the combine weights before the experts, if several processes each compute a part of
        an expert.
    leave: called on the expert outputs, to add these parts together.
    """

    def __init__(
        self,
        dim: int,
        config: MoEConfig,
        *,
        decoder: bool = False,
        ffn_dim: int = 0,
        activation: Activation = "relu",
        biases: bool = False,
    ) -> None:
        super().__init__()
        self.config = config
        self.num_experts = config.num_experts
        self.router = build_router(dim, config.num_experts, config.gate_of(decoder=decoder), with_z=config.z_weight > 0)
        self.experts = Experts(config.num_experts, dim, config.expert_dim, activation, biases=biases)
        self.shared_experts = (
            FeedForward(dim, config.shared_dim, activation, biases=biases) if config.shared_experts else None
        )
        conditional = config.conditional
        self.conditional = (
            Conditional(dim, ffn_dim, conditional, activation, biases=biases) if conditional is not None else None
        )
        self.decisions: AbstractContextManager[Any] = nullcontext()
        self.drops: Counting | None = None
        self.enter: Convert = unchanged
        self.leave: Convert = unchanged

    @property
    def loss_weights(self) -> dict[str, float]:
        """Weights of the auxiliary losses by name, without those of weight 0."""
        weights = {**self.router.loss_weights, "z": self.config.z_weight}
        if self.config.conditional is not None:
            weights["budget"] = self.config.conditional.weight
        return {name: weight for name, weight in weights.items() if weight}

    def limit_evaluation(self, factor: float, drops: Counting | None) -> None:
        """Give experts a capacity in evaluation, or take it away.

        factor: capacity in fair shares; 0 is no capacity.
        drops: counts the choices that the capacity drops.
        Raises ValueError if the gate cannot have a capacity.
        """
        self.config.check_evaluation_capacity(factor)
        if isinstance(self.router, Queueing):
            self.router.evaluation_factor, self.drops = factor, drops

    def forward(self, x_GSM: Tensor, tokens: Tokens) -> tuple[Tensor, MoEStatistics]:
        # the gate computes in float32 for any dtype of the model
        with outside_autocast(x_GSM), self.decisions:
            routing: Routing = self.router(at_least_float32(x_GSM), tokens)
        losses = dict(routing.decision.losses)
        if self.conditional is not None:
            gate_GS, losses["budget"] = self.conditional.gate(x_GSM, tokens.valid_GS)
        decision = routing.decision
        if self.drops is not None and isinstance(decision, Gating):
            self.drops.add(decision)
            decision = replace(decision, capacity=None)  # ragged rows, because processes have passes of different sizes
        if self.training and self.config.output_masking:
            decision = mask_outputs(decision, self.config.output_masking)
        by_einsum = self.config.dispatch == "einsum" and decision.capacity is not None
        y_GSM, num_rows = self._by_einsum(x_GSM, decision) if by_einsum else self._by_gather(x_GSM, decision)
        y_GSM = self.scaled(y_GSM)
        statistics = self._statistics(routing, tokens, losses, num_rows)
        if self.shared_experts is not None:
            y_GSM = y_GSM + self.shared_experts(x_GSM).to(y_GSM.dtype)
        if self.conditional is not None:
            y_GSM = self.conditional(x_GSM, y_GSM, gate_GS)
        return y_GSM, statistics

    def scaled(self, y: Tensor) -> Tensor:
        """Return the outputs of experts times `output_scale`."""
        return y if self.config.output_scale == 1 else y * self.config.output_scale

    def _by_gather(self, x_GSM: Tensor, decision: Gating | Selection) -> tuple[Tensor, int]:
        """Return outputs [G, S, M] and the number of rows that experts computed."""
        route = decision.route(cut=self.experts.waits(x_GSM))
        route = replace(route, weight_N=self.enter(route.weight_N))
        rows_XM = self.experts(dispatch(self.enter(x_GSM).flatten(0, 1), route), route.counts_E)
        return self.leave(combine(rows_XM, route)).view(x_GSM.shape), len(rows_XM)

    def _by_einsum(self, x_GSM: Tensor, decision: Gating | Selection) -> tuple[Tensor, int]:
        """Return the same as `_by_gather`, by Algorithm 2 as printed. Rows are in the order [E, G, C]."""
        combine_GSEC = self.enter(decision.dense().to(x_GSM.dtype))
        mask_GSEC = (combine_GSEC != 0).to(x_GSM.dtype)
        slots_EGCM = torch.einsum("gsec,gsm->egcm", mask_GSEC, self.enter(x_GSM))
        rows_XM = self.experts(slots_EGCM.flatten(0, 2))
        y_GSM = torch.einsum("gsec,egcm->gsm", combine_GSEC, rows_XM.view(slots_EGCM.shape))
        return self.leave(y_GSM), len(rows_XM)

    def _statistics(self, routing: Routing, tokens: Tokens, losses: dict[str, Tensor], num_rows: int) -> MoEStatistics:
        decision, valid_GS = routing.decision, tokens.valid_GS
        if "balance" in losses:
            losses["balance"] = losses["balance"] * self.num_experts**2
        if routing.observed.z_loss_G is not None:
            losses["z"] = routing.observed.z_loss_G
        sums = {name: loss_G.sum() for name, loss_G in losses.items()}
        weighted = [weight * sums[name] for name, weight in self.loss_weights.items() if name in sums]
        return MoEStatistics(
            loss=sum(weighted[1:], weighted[0]) if weighted else torch.zeros((), device=valid_GS.device),
            losses={name: loss.detach() for name, loss in sums.items()},
            tokens=valid_GS.sum(),
            choices=decision.asked,
            kept=decision.kept,
            unserved=decision.unserved,
            rows=torch.full((), num_rows, dtype=torch.int64, device=valid_GS.device),
            entropy=routing.observed.entropy,
            sampled=routing.observed.sampled,
            not_finite=routing.observed.not_finite,
            usage_PE=decision.usage(tokens.pair_GS, tokens.num_pairs),
        )


def mask_outputs(decision: Gating | Selection, probability: float) -> Gating | Selection:
    """Mask expert outputs at random (EOM, arXiv:2212.07571, section 3).

    The output of an expert for a token is masked with `probability`. The other expert or the residual connection then
    carries the token alone. Outputs that stay are divided by 1 - probability, as in dropout, so that evaluation needs
    no factor. Masking an output is done by masking its combine weight.
    """
    keep = torch.rand(decision.weights.shape, device=decision.weights.device) >= probability
    return decision.masked(keep / (1.0 - probability))
