"""How long work and collectives take on a device: a roofline, and links that are filled."""

import math
from dataclasses import dataclass

from pipeline.parallel.layout import AXES, Layout
from pipeline.plan.workload import Collective, Device, Work


def seconds(work: Work, device: Device, precision: str) -> float:
    """The longer of its arithmetic and its way through memory, and what starting its operations takes."""
    if work.part == "gate":
        precision = "fp32"  # whatever the rest is
    share = device.efficiency.get(f"{work.part}_{precision}", device.efficiency.get(work.part, 1.0))
    return max(work.flops / (device.flops[precision] * share), work.bytes / device.bandwidth) + (
        work.launches * device.launch
    )


@dataclass(frozen=True, kw_only=True)
class Group:
    """size: processes of a collective. near: of them on one node."""

    size: int
    near: int

    @property
    def crosses(self) -> bool:
        """Whether it leaves the node."""
        return self.near < self.size


def group(axes: tuple[str, ...], layout: Layout, node: int) -> Group:
    """The processes that differ in these axes alone. Ranks count the last axis of `AXES` first, nodes take ranks in
    order, and a node that groups do not fill evenly counts as its smallest share."""
    size, near, stride = 1, 1, 1
    for axis in reversed(AXES):
        if axis in axes:
            size *= layout.sizes[axis]
            near *= math.gcd(layout.sizes[axis], max(1, node // stride))
        stride *= layout.sizes[axis]
    return Group(size=size, near=near)


def collective_seconds(collective: Collective, layout: Layout, device: Device) -> float:
    """All `count` of them. Bandwidth as the best known algorithms use it, and a latency for each doubling of the
    processes; inside a node and between nodes at the same time."""
    found = group(collective.axes, layout, device.node)
    if found.size == 1:
        return 0.0
    inside, outside = traffic(collective, found)
    taken = inside / device.rates.get(collective.kind, device.link)
    if found.crosses:
        far = outside / device.network
        if device.topology == "torus" and collective.kind == "all_to_all":
            far *= max(1.0, math.sqrt(found.size / found.near) / 2)  # hops: a quarter of each side, two ways to go
        taken = max(taken, far)
    latency = device.network_latency if found.crosses else device.latency
    return taken + collective.count * latency * math.ceil(math.log2(found.size))


def traffic(collective: Collective, found: Group) -> tuple[float, float]:
    """Bytes that one process sends to others of its node, and over its own share of the network."""
    n, near, size = found.size, found.near, collective.bytes
    if collective.kind == "all_to_all":
        return size * (near - 1) / n, size * (n - near) / n
    # a ring through all processes, of which as many as share a node cross over side by side
    total = {"all_reduce": 2.0 * size * (n - 1) / n}.get(collective.kind, size * (n - 1) / n)
    if collective.kind in ("broadcast", "reduce"):
        total = float(size)
    return (total if near > 1 else 0.0), (total / near if found.crosses else 0.0)
