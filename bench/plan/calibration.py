"""Rates of this machine, as configs/device/<name>.yaml: peaks and links measured directly, and the share of them that
each part of a step reaches, by least squares on whole steps.

Only rates of the device are fitted, and to other configurations than those that are predicted.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from bench.plan.case import Case
from bench.plan.measuring import Measured, start
from pipeline.jobs.matmul import choose_matmul
from pipeline.plan import parts, roofline
from pipeline.plan.collectives import engine_collectives, model_collectives
from pipeline.plan.workload import KINDS, PARTS, Device

# What is known before anything is measured: a part takes this much longer than peak and bandwidth say. Few steps do
# not tell all parts from each other; those they do not tell stay near it.
EXPECTED = 1.5
TRUST = 0.03  # weight of that beside a measurement's relative error
LEAST, MOST = 1.0, 20.0
LAUNCH, LATENCY = "launch", "latency"


def directly(device: str, name: str, *, processes: int, resident: float) -> Device:
    """What can be measured alone. resident: bytes."""
    found = start("bench.plan.rates", {"device": device}, processes=processes, title="rates")
    slowest: dict[str, Any] = {
        key: min(each[key] for each in found) for key in found[0] if isinstance(found[0][key], float)
    }
    rates = {kind: min(each["rates"][kind] for each in found) for kind in found[0].get("rates", {})}
    link = max(rates.values(), default=1e9)
    return Device(
        name=device,
        kind="cuda" if device == "cuda" else "cpu",
        source=f"python -m bench.plan --calibrate on {name}",
        flops={key: min(each["flops"][key] for each in found) for key in found[0]["flops"]},
        memory=memory_of(device, processes),
        resident=resident,
        bandwidth=slowest["bandwidth"],
        launch=slowest["launch"],
        node=processes,
        link=link,
        network=link,
        latency=slowest.get("latency", 0.0),
        network_latency=slowest.get("latency", 0.0),
        efficiency={kind: rate / link for kind, rate in rates.items()},
        price=0.0,
        float32_attention=device == "cpu" and choose_matmul() == "onednn",
    )


def memory_of(device: str, processes: int) -> float:
    """Bytes of one process."""
    if device == "cuda":
        return float(torch.cuda.get_device_properties(0).total_memory)
    found = re.search(r"^MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return float(found[1]) * 1024 / processes


def fit(device: Device, measured: Mapping[Case, Measured]) -> Device:
    """The same with shares of its peaks and links, and times of a launch and of a collective, that make predictions of
    these steps as good as can be: in a step nothing is in a cache, and processes wait for each other."""
    sent = [kind for kind in KINDS if kind in device.efficiency]
    names = [*PARTS, *sent, LAUNCH, *([LATENCY] if sent else [])]
    rows = [_times(case, device) for case in measured]
    weights = torch.tensor([1 / found.seconds for found in measured.values()], dtype=torch.float64)
    x = torch.tensor([[row[name] for name in names] for row in rows], dtype=torch.float64) * weights.unsqueeze(1)
    y = torch.ones(len(rows), dtype=torch.float64)
    factors = dict(zip(names, _bounded(x, y), strict=True))
    shares = {name: device.efficiency.get(name, 1.0) / factors[name] for name in (*PARTS, *sent)}
    latency = device.latency * factors.get(LATENCY, 1.0)
    return replace(
        device,
        launch=device.launch * factors[LAUNCH],
        latency=latency,
        network_latency=latency,
        efficiency=shares,
    )


def _times(case: Case, device: Device) -> Counter[str]:
    """Seconds of each part at peak, of all launches, of each kind of collective on its link, and of their latencies."""
    workload, setup = case.workload, case.setup
    found: Counter[str] = Counter()
    works = [parts.times(each, setup.accumulation(workload)) for each in parts.micro_batch(workload, setup)]
    still = replace(device, launch=0.0)
    for each in [*works, parts.optimizer(workload, setup)]:
        found[each.part] += roofline.seconds(each, still, workload.precision)  # type: ignore[assignment]
        found[LAUNCH] += each.launches * device.launch  # type: ignore[assignment]
    for sent in [*model_collectives(workload, setup), *engine_collectives(workload, setup)]:
        at_once = roofline.collective_seconds(sent, setup.layout, replace(device, latency=0.0))
        found[sent.kind] += at_once  # type: ignore[assignment]
        found[LATENCY] += roofline.collective_seconds(sent, setup.layout, device) - at_once  # type: ignore[assignment]
    return found


def _bounded(x: torch.Tensor, y: torch.Tensor) -> list[float]:
    """Factors between LEAST and MOST, near EXPECTED where nothing is known, of least squares: what comes out past a
    bound is set to it, and the rest is fitted again."""
    count = x.shape[1]
    fixed: dict[int, float] = {}
    while True:
        free = [index for index in range(count) if index not in fixed]
        known = sum((x[:, index] * value for index, value in fixed.items()), torch.zeros_like(y))
        if not free:
            break
        prior = TRUST * torch.eye(len(free), dtype=x.dtype)
        system = torch.cat((x[:, free], prior))
        wanted = torch.cat((y - known, TRUST * EXPECTED * torch.ones(len(free), dtype=x.dtype)))
        solution = torch.linalg.lstsq(system, wanted).solution.tolist()
        past = {i: min(max(v, LEAST), MOST) for i, v in zip(free, solution, strict=True) if not LEAST <= v <= MOST}
        if not past:
            return [fixed.get(i, solution[free.index(i)] if i in free else 0.0) for i in range(count)]
        fixed |= past
    return [fixed[index] for index in range(count)]


def as_yaml(device: Device) -> str:
    """As the files of configs/device are written."""
    efficiency = ", ".join(f"{key}: {value:.3g}" for key, value in sorted(device.efficiency.items()))
    flops = ", ".join(f"{key}: {_number(value)}" for key, value in device.flops.items())
    scalars = ["memory", "resident", "bandwidth", "launch", "node", "link", "network", "latency", "network_latency"]
    lines = [f"name: {device.name}", f"kind: {device.kind}", f"source: {device.source}", f"flops: {{{flops}}}"]
    lines += [f"{name}: {_number(getattr(device, name))}" for name in scalars]
    return "\n".join(
        [
            *lines,
            f"efficiency: {{{efficiency}}}",
            "topology: switch",
            "price: 0.0",
            f"float32_attention: {str(device.float32_attention).lower()}",
            "",
        ]
    )


def _number(value: float) -> str:
    """YAML 1.1 reads an exponent as a number only behind a decimal point and with a sign."""
    return str(value) if isinstance(value, int) else f"{value:.3e}"
