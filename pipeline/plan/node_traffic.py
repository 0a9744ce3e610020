"""The bytes of tokens that leave a node on their way to experts, where a gate limits the nodes of a token.

Training sends a row for each choice of an expert, or for each slot. A limit of nodes does not change their number: it
saves bytes only in a dispatch that sends a token once to each of its nodes and spreads it there, which training does
not have. Such a dispatch is counted beside what is sent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.model.config import ModelConfig
from pipeline.model.moe.gates.config import GateConfig
from pipeline.model.moe.gates.top_k_config import TopKConfig
from pipeline.plan import roofline
from pipeline.plan.layers import layer_kinds
from pipeline.plan.workload import Collective, Device, Setup, Workload


@dataclass(frozen=True, kw_only=True)
class NodeTraffic:
    """Bytes that the dispatch of one process sends to other nodes in a step, forward and backward.

    nodes: number of nodes over which the experts are cut.
    sent: bytes that training sends. They are the same without the limit.
    once: bytes at most, if each token went once to each node of its experts.
    once_without_limit: the same for a gate without the limit, whose tokens choose all experts alike.
    """

    nodes: int
    sent: float
    once: float
    once_without_limit: float


def node_traffic(
    workload: Workload, setup: Setup, device: Device, collectives: Sequence[Collective]
) -> NodeTraffic | None:
    """Return the traffic of a model whose gates limit nodes; None for other models, and where all experts are near.

    collectives: those of the model.
    """
    layout, model = setup.layout, workload.model
    axis = layout.axis("E") if model.moe.num_experts else None
    gates = [model.moe.gate_of(decoder=decoder) for decoder in (False, True)]
    if axis is None or not layout.handed_over or not any(_limits(gate) for gate in gates):
        return None
    group = roofline.group((axis,), layout, device.node)
    if not group.crosses:
        return None
    nodes = group.size // group.near
    sent = sum(roofline.traffic(part, group)[1] for part in collectives if part.part == "dispatch")
    once, without_limit = 0.0, 0.0
    for decoder, gate in zip((False, True), gates, strict=True):
        rows = _rows(workload, setup, decoder=decoder) * (nodes - 1) / nodes
        alike = nodes_chosen_alike(model.moe.num_experts, nodes, round(gate.experts_per_token))
        once += rows * min(alike, _most_nodes(gate, model, nodes))
        without_limit += rows * alike
    row = model.dim * (4 if workload.precision == "fp32" else 2)
    return NodeTraffic(nodes=nodes, sent=sent, once=row * once, once_without_limit=row * without_limit)


def nodes_chosen_alike(num_experts: int, nodes: int, k: int) -> float:
    """Return the expected number of nodes with at least one of k experts that are drawn alike from all of them."""
    elsewhere = num_experts - num_experts // nodes
    return nodes * (1 - math.comb(elsewhere, k) / math.comb(num_experts, k))


def _limits(gate: GateConfig) -> bool:
    return isinstance(gate, TopKConfig) and gate.limits_nodes


def _most_nodes(gate: GateConfig, model: ModelConfig, nodes: int) -> int:
    """Return a bound for the nodes of a token. A node of the gate may lie on several ones of the cluster."""
    if not isinstance(gate, TopKConfig):
        return nodes
    E = model.moe.num_experts
    near, size = E // nodes, E // gate.expert_nodes
    spans = [(first + size - 1) // near - first // near + 1 for first in range(0, E, size)]
    return min(nodes, gate.max_nodes * max(spans))


def _rows(workload: Workload, setup: Setup, *, decoder: bool) -> int:
    """Return the tokens that the MoE layers of one side send or get back in a step, each counted once a direction."""
    tokens = workload.target_tokens if decoder else workload.source_tokens
    kinds = [kind for kind in layer_kinds(workload.model, setup.recompute, decoder=decoder) if kind.moe]
    passes = [2 if kind.recompute == "everything" else 1 for kind in kinds]
    return setup.accumulation(workload) * tokens * sum(2 * number + 2 for number in passes)
