"""How long work and collectives take on a device: a roofline, and links that are filled."""

import math
from dataclasses import dataclass

from pipeline.parallel.layout import AXES, Layout
from pipeline.plan.workload import Collective, Device, Work


def seconds(work: Work, device: Device, precision: str) -> float:
    """The longer of its arithmetic and its way through memory, at the share of either that its part reaches, and what
    starting its operations takes."""
    if work.part == "gate":
        precision = "fp32"  # whatever the rest is
    share = device.efficiency.get(f"{work.part}_{precision}", device.efficiency.get(work.part, 1.0))
    longer = max(work.flops / device.flops[precision], work.bytes / device.bandwidth)
    return longer / share + work.launches * device.launch


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
    """The processes that differ in these axes alone. Ranks count the last axis of `AXES` first, and nodes take `node`
    ranks in order; of a group that lies unevenly on them, the smallest share counts."""
    size = layout.parts(axes)
    if layout.world <= node:
        return Group(size=size, near=size)
    near, stride = 1, 1
    for axis in reversed(AXES):
        if axis in axes and node % stride == 0:
            near *= math.gcd(layout.sizes[axis], node // stride)
        stride *= layout.sizes[axis]
    return Group(size=size, near=near)


def collective_seconds(collective: Collective, layout: Layout, device: Device) -> float:
    """All `count` of them. Bandwidth as the best known algorithms use it, and a latency for each doubling of the
    processes; inside a node and between nodes at the same time."""
    found = group(collective.axes, layout, device.node)
    if found.size == 1:
        return 0.0
    inside, outside = traffic(collective, found)
    if device.topology == "torus" and collective.kind == "all_to_all":
        outside *= max(1.0, math.sqrt(found.size / found.near) / 2)  # hops: a quarter of each side, two ways to go
    taken = max(inside / device.link, outside / device.network) / device.efficiency.get(collective.kind, 1.0)
    latency = device.network_latency if found.crosses else device.latency
    return taken + collective.count * latency * math.ceil(math.log2(found.size))


def traffic(collective: Collective, found: Group) -> tuple[float, float]:
    """Bytes that one process sends to others of its node, and over its own share of the network."""
    n, near, size = found.size, found.near, collective.bytes
    if collective.kind == "all_to_all":
        return size * (near - 1) / n, size * (n - near) / n
    if collective.kind in ("reduce", "broadcast"):
        sent = float(size)
    else:
        sent = size * (n - 1) / n * (2 if collective.kind == "all_reduce" else 1)
    # of a ring through all processes one link leaves each node, over the shares of all that are there
    return (sent if near > 1 else 0.0), (sent / near if found.crosses else 0.0)
