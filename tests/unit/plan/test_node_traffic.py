"""A limit of nodes: what the dispatch of training sends to other nodes, and what one that sends tokens once would.

Plans are compared with the collectives of the real model in fake worlds, and with the choices of real routers.
"""

from dataclasses import replace

import pytest
import torch

from pipeline.model.moe.gates.top_k_config import TopKConfig
from pipeline.model.moe.routers import TopKRouter
from pipeline.model.moe.tokens import Tokens
from pipeline.plan.command import answer
from pipeline.plan.config import load_plan
from pipeline.plan.node_traffic import nodes_chosen_alike
from pipeline.plan.plan import make_plan
from tests.plans import device_of, workload_of
from tests.unit.plan.test_collectives import GSHARD_MODEL, PAPER, count, setup_of

NODE = 8
LIMIT = TopKConfig(k=8, expert_nodes=256, max_nodes=4)
UNLIMITED = replace(LIMIT, max_nodes=256)


def model_with(gate, model=GSHARD_MODEL, **sizes):
    return replace(model, moe=replace(model.moe, gate=gate, **sizes))


def test_at_2048_processes_the_limit_sends_the_same_bytes():
    """Two layers of MoE(2048E) on 2,048 processes, 8 to a node: equal collectives, of which 2040 / 2048 leave the node.

    An expert has ceil(1.25 · 8 · 2048 / 2048) slots. Each of two layers sends four times.
    """
    sent = []
    for gate in (LIMIT, UNLIMITED):
        model = replace(model_with(gate), encoder_layers=2, decoder_layers=2)
        workload, setup = replace(PAPER, model=model), setup_of(1, 2048, 1, "gshard")
        _, counted, expected = count(workload, setup)
        assert counted == expected == {("all_to_all", tuple(range(2048))): (8 * 2048 * 10 * 1024 * 4, 8)}
        plan = make_plan(workload, setup, device_of(node=NODE))
        (dispatch,) = [part for part in plan.collectives if part.collective.part == "dispatch"]
        sent.append(dispatch.bytes_outside)
        if gate is LIMIT:
            assert plan.node_traffic.sent == dispatch.bytes_outside == 8 * 2040 * 10 * 1024 * 4
            assert plan.node_traffic.nodes == 256
            # each token to 4 nodes, of which 255 / 256 are others; 4 times in each of two layers
            assert plan.node_traffic.once == pytest.approx(8 * 2048 * 4 * 255 / 256 * 1024 * 4)
        else:
            assert plan.node_traffic is None
    assert sent[0] == sent[1]


def routed(gate, *, experts, tokens=4000):
    """Return the experts [S, K] that a router with random weights gives to random tokens."""
    source = torch.Generator().manual_seed(5)
    router = TopKRouter(96, experts, gate, with_z=False)
    with torch.no_grad():
        router.wg_EM.normal_(generator=source)
    x = torch.randn(1, tokens, 96, generator=source) / 10
    return router(x, Tokens.of_mask(torch.ones(tokens, 1, dtype=torch.bool))).decision


@pytest.mark.parametrize(("experts", "nodes", "limit"), [(2048, 256, 4), (256, 8, 4)], ids=["2048", "DeepSeek-V3"])
def test_rows_and_nodes_of_real_choices_are_those_of_the_plan(experts, nodes, limit):
    """A process on the first node sends as many rows to others with the limit. Its tokens visit fewer nodes."""
    near, rows, visited = experts // nodes, [], []
    for max_nodes in (limit, nodes):
        gate = TopKConfig(k=8, capacity_factor=0.0, expert_nodes=nodes, max_nodes=max_nodes)
        decision = routed(gate, experts=experts)
        counts_E = decision.route().counts_E
        assert int(counts_E.sum()) == 8 * 4000
        rows.append(int(counts_E[near:].sum()))
        node_SK = decision.expert_GSK[0] // near
        visited.append(torch.tensor([len(set(row)) for row in node_SK.tolist()]).double())
        assert rows[-1] == pytest.approx(8 * 4000 * (nodes - 1) / nodes, rel=0.05)  # some experts are chosen more
    assert rows[0] == pytest.approx(rows[1], rel=0.05)
    limited, free = visited
    assert limited.max() <= limit < free.max()
    assert 0.95 * limit < limited.mean() <= limit
    assert float(free.mean()) == pytest.approx(nodes_chosen_alike(experts, nodes, 8), rel=0.01)


def test_the_expected_nodes_by_hand():
    """Two of four experts on two nodes are on one node in 2 of 6 cases. DeepSeek-V3 would visit 5.3 of 8 nodes."""
    assert nodes_chosen_alike(4, 2, 2) == pytest.approx(2 - 2 / 6)
    assert nodes_chosen_alike(6, 3, 1) == pytest.approx(1)
    assert nodes_chosen_alike(256, 8, 8) == pytest.approx(5.3, abs=0.02)


@pytest.mark.parametrize(
    ("expert_nodes", "k", "visited"),
    [
        (4, 4, 1),
        (8, 2, 1),  # two nodes of the gate on each
        (2, 4, 2),  # a node of the gate on two
        (2, 2, 1.8),  # k experts chosen alike visit no more than this
    ],
)
def test_nodes_of_the_gate_that_are_not_those_of_the_cluster(expert_nodes, k, visited):
    """16 experts on four nodes of four processes, and max_nodes=1."""
    gate = TopKConfig(k=k, expert_nodes=expert_nodes)
    model = model_with(gate, workload_of().model, num_experts=16)
    plan = make_plan(workload_of(model=model), setup_of(1, 16, 1, "gshard"), device_of(node=4))
    alike = nodes_chosen_alike(16, 4, k)
    rows = 2 * 4 * 2 * (24 + 20) * 16 * 4 * 3 / 4  # micro-batches, ways, tokens of both sides, bytes, other nodes
    assert plan.node_traffic.once == pytest.approx(rows * visited)
    assert plan.node_traffic.once_without_limit == pytest.approx(rows * alike)


@pytest.mark.parametrize(
    ("sizes", "table", "node"),
    [
        ((1, 4, 1), "gshard", 8),
        ((4, 1, 1), "gshard", 1),
        ((2, 2, 1), "gshard", 2),
        ((1, 1, 2), "experts over model", 1),
    ],
)
def test_experts_that_are_all_near_have_no_traffic(sizes, table, node):
    model = model_with(TopKConfig(expert_nodes=2), workload_of().model)
    assert make_plan(workload_of(model=model), setup_of(*sizes, table), device_of(node=node)).node_traffic is None


def test_recomputation_sends_again():
    model = model_with(TopKConfig(expert_nodes=2), workload_of().model)
    once = [
        make_plan(workload_of(model=model), setup_of(1, 4, 1, "gshard", recompute), device_of(node=2)).node_traffic.once
        for recompute in ("none", "all")
    ]
    assert once[1] == pytest.approx(1.5 * once[0])


SIXTY_FOUR = ["devices=64", "batch.groups_per_step=64", "model.moe.num_experts=64"]
K8 = "model.moe.gate.k=8"


def nodes_of(expert_nodes, max_nodes):
    return [f"model.moe.gate.expert_nodes={expert_nodes}", f"model.moe.gate.max_nodes={max_nodes}"]


def test_a_plan_says_what_is_sent_and_what_is_not(caplog):
    result = answer(load_plan([*SIXTY_FOUR, "gate=node_limited", K8, *nodes_of(8, 4)]))
    traffic = result.values["node_traffic"]
    assert set(traffic) == {"nodes", "sent", "once", "once_without_limit"}
    assert traffic["once"] < traffic["once_without_limit"] < traffic["sent"]
    assert traffic["once"] / traffic["once_without_limit"] == pytest.approx(4 / nodes_chosen_alike(64, 8, 8))
    assert "with the limit of nodes as without it: a row for each choice or slot" in result.text
    assert "once to each of its nodes, which is not implemented" in result.text
    assert not caplog.messages
    assert "node_traffic" not in answer(load_plan([*SIXTY_FOUR, "gate=sigmoid", K8])).values


def test_a_plan_warns_of_nodes_that_are_not_those_of_the_gate(caplog):
    answer(load_plan([*SIXTY_FOUR, "gate=node_limited", K8, *nodes_of(4, 2)]))
    (message,) = caplog.messages
    assert message.endswith(
        "model.moe.gate.expert_nodes=4, but runtime.ep spreads the experts over 8 nodes of 8 processes each, so a "
        "token may visit more than max_nodes=2 of them; a new model may have expert_nodes=8"
    )
