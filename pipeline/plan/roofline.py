"""The seconds that work and collectives take on a device, by a roofline model and fully used links."""

import math
from dataclasses import dataclass

from pipeline.parallel.layout import Layout
from pipeline.plan.workload import Collective, Device, Work


def seconds(work: Work, device: Device, precision: str) -> float:
    """Return the time of some work: the longer of its arithmetic and its memory accesses, plus the launches.

    Arithmetic and memory reach the share of their peak that the device gives for the part.
    """
    if work.part == "gate":
        precision = "fp32"  # the router is never cast
    share = device.efficiency.get(f"{work.part}_{precision}", device.efficiency.get(work.part, 1.0))
    longer = max(work.flops / device.flops[precision], work.bytes / device.bandwidth)
    return longer / share + work.launches * device.launch


@dataclass(frozen=True, kw_only=True)
class Group:
    """The processes of a collective. size: their number. near: the number of them on one node."""

    size: int
    near: int

    @property
    def crosses(self) -> bool:
        """Return whether the collective leaves the node."""
        return self.near < self.size


def group(axes: tuple[str, ...], layout: Layout, node: int) -> Group:
    """Return the group of processes that differ in these axes alone. node: processes of a node."""
    return Group(size=layout.parts(axes), near=layout.near(axes, node))


def collective_seconds(collective: Collective, layout: Layout, device: Device) -> float:
    """Return the time of all `count` collectives.

    They use bandwidth as the best known algorithms do, inside a node and between nodes at the same time, and take a
    latency for each doubling of the processes.
    """
    processes = group(collective.axes, layout, device.node)
    if processes.size == 1:
        return 0.0
    inside, outside = traffic(collective, processes)
    if device.topology == "torus" and collective.kind == "all_to_all":
        outside *= max(
            1.0, math.sqrt(processes.size / processes.near) / 2
        )  # hops: a quarter of each side, two ways to go
    transfer = max(inside / device.link, outside / device.network) / device.efficiency.get(collective.kind, 1.0)
    latency = device.network_latency if processes.crosses else device.latency
    return transfer + collective.count * latency * math.ceil(math.log2(processes.size))


def traffic(collective: Collective, processes: Group) -> tuple[float, float]:
    """Return the bytes that one process sends inside its node, and over its own share of the network."""
    n, near, size = processes.size, processes.near, collective.bytes
    if collective.kind == "all_to_all":
        return size * (near - 1) / n, size * (n - near) / n
    if collective.kind in ("reduce", "broadcast"):
        sent = float(size)
    else:
        sent = size * (n - 1) / n * (2 if collective.kind == "all_reduce" else 1)
    # One link of a ring leaves each node, and uses the network shares of all its processes in the node.
    return (sent if near > 1 else 0.0), (sent / near if processes.crosses else 0.0)
