"""Seconds are those of a computation by hand, on the device of tests/plans.py."""

import pytest

from pipeline.plan.roofline import Group, collective_seconds, group, seconds
from pipeline.plan.workload import KINDS, Collective, Device, Kind, Work
from tests.plans import device_of, setup_of


def work_of(part: str = "dense", *, flops: float = 0.0, moved: float = 0.0, launches: int = 0) -> Work:
    return Work(part=part, flops=flops, bytes=moved, launches=launches)


def test_the_longer_of_arithmetic_and_memory_counts() -> None:
    device = device_of(launch=1e-3)
    assert seconds(work_of(flops=2e12, moved=1e11), device, "fp32") == 2.0
    assert seconds(work_of(flops=2e12, moved=3e11), device, "fp32") == 3.0
    assert seconds(work_of(flops=2e12, moved=5e10), device, "bf16") == 1.0
    assert seconds(work_of(launches=7), device, "fp32") == pytest.approx(7e-3)


def test_efficiency_is_of_a_part_and_of_a_precision_where_that_is_named() -> None:
    device = device_of(efficiency={"attention": 0.5, "attention_bf16": 0.25})
    assert seconds(work_of("attention", flops=1e12), device, "fp32") == 2.0
    assert seconds(work_of("attention", flops=1e12), device, "bf16") == 2.0
    assert seconds(work_of("attention", moved=1e11), device, "fp32") == 2.0
    assert seconds(work_of("dense", flops=1e12), device, "fp32") == 1.0


def test_the_gate_computes_in_float32() -> None:
    assert seconds(work_of("gate", flops=1e12), device_of(), "bf16") == 1.0


@pytest.mark.parametrize(
    ("sizes", "axes", "node", "size", "near"),
    [
        ({"data": 2, "expert": 4}, ("expert",), 4, 4, 4),
        ({"data": 2, "expert": 4}, ("data",), 4, 2, 1),
        ({"data": 2, "expert": 4}, ("data", "expert"), 4, 8, 4),
        ({"expert": 16}, ("expert",), 4, 16, 4),
        ({"data": 2, "expert": 4, "model": 2}, ("expert",), 4, 4, 2),
        ({"data": 2, "expert": 4, "model": 2}, ("model",), 4, 2, 2),
        ({"data": 2, "expert": 4, "model": 2}, ("data", "model"), 8, 4, 2),
        ({"expert": 6}, ("expert",), 8, 6, 6),  # all on one node, which they do not fill
        ({"data": 4, "expert": 6}, ("expert",), 8, 6, 2),  # ranks 6 to 11 are two on the first node, four on the next
        ({"data": 2, "expert": 2, "model": 3}, ("expert",), 4, 2, 1),  # ranks 0 and 3 are near, 6 and 9 are not
    ],
)
def test_the_processes_of_a_group_on_one_node(
    sizes: dict[str, int], axes: tuple[str, ...], node: int, size: int, near: int
) -> None:
    assert group(axes, setup_of(**sizes).layout, node) == Group(size=size, near=near)


def taken(kind: Kind, device: Device, *, count: int = 1, **sizes: int) -> float:
    """Return the seconds of collectives of 8 GB over the axis expert."""
    collective = Collective(part="dispatch", kind=kind, axes=("expert",), bytes=8 * 10**9, count=count)
    return collective_seconds(collective, setup_of(**sizes).layout, device)


def test_inside_a_node_the_link_is_filled() -> None:
    """8 GB among 4: all but a quarter of it is for others, and an all-reduce takes twice the way."""
    share = {"all_reduce": 1.5, "all_to_all": 0.75, "reduce_scatter": 0.75, "all_gather": 0.75}
    for kind in KINDS:
        assert taken(kind, device_of(), expert=4) == pytest.approx(0.8 * share.get(kind, 1.0))
        assert taken(kind, device_of(), data=4) == 0.0


def test_between_nodes_each_process_brings_its_share_of_the_network() -> None:
    """Two nodes of four: of an all-to-all half leaves the node; of a ring's 2 · 7/8, one link, over four shares."""
    assert taken("all_to_all", device_of(), expert=8) == pytest.approx(8 * 0.5)
    assert taken("all_reduce", device_of(), expert=8) == pytest.approx(8 * 2 * 7 / 8 / 4)
    assert taken("all_reduce", device_of(network=1e12), expert=8) == pytest.approx(0.8 * 2 * 7 / 8)  # the link
    assert taken("all_gather", device_of(node=1), expert=8) == pytest.approx(8 * 7 / 8)


def test_a_torus_slows_all_to_all_with_the_root_of_its_nodes_and_nothing_else() -> None:
    switch, torus = device_of(node=2), device_of(node=2, topology="torus")
    for size, slower in ((8, 1.0), (32, 2.0), (128, 4.0), (2048, 16.0)):
        assert taken("all_to_all", torus, expert=size) == pytest.approx(
            slower * taken("all_to_all", switch, expert=size)
        )
        assert taken("all_reduce", torus, expert=size) == taken("all_reduce", switch, expert=size)


def test_latency_is_of_each_collective_and_doubling() -> None:
    device = device_of(latency=1.0, network_latency=10.0)
    alone = device_of()
    assert taken("all_to_all", device, expert=4, count=3) - taken("all_to_all", alone, expert=4) == pytest.approx(6.0)
    assert taken("all_to_all", device, expert=8, count=3) - taken("all_to_all", alone, expert=8) == pytest.approx(90.0)


def test_a_kind_of_collective_may_reach_a_share_of_its_link_and_network() -> None:
    device = device_of(efficiency={"all_reduce": 0.5})
    for size in (4, 8):
        assert taken("all_reduce", device, expert=size) == 2 * taken("all_reduce", device_of(), expert=size)
        assert taken("all_to_all", device, expert=size) == taken("all_to_all", device_of(), expert=size)
