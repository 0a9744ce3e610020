"""Calibration of this machine's rates, for configs/device/<name>.yaml.

Peaks and links are measured directly. The share of them that each part of a step reaches is fitted by least squares on
whole steps, of other configurations than the predicted ones.
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

# The prior of the fit: a part takes 1.5 times as long as by peak and bandwidth. Parts that the few measured steps do
# not tell apart stay near it.
EXPECTED = 1.5
TRUST = 0.03  # weight of the prior relative to a measurement's relative error
LEAST, MOST = 1.0, 20.0
LAUNCH, LATENCY = "launch", "latency"


def directly(device: str, name: str, *, processes: int, resident: float) -> Device:
    """Measure the rates that can be measured alone. resident: bytes of a process before it has a model."""
    results = start("bench.plan.rates", {"device": device}, processes=processes, title="rates")
    first = results[0]
    slowest: dict[str, Any] = {
        key: min(result[key] for result in results) for key in first if isinstance(first[key], float)
    }
    rates = {kind: min(result["rates"][kind] for result in results) for kind in first.get("rates", {})}
    link = max(rates.values(), default=1e9)
    return Device(
        name=device,
        kind="cuda" if device == "cuda" else "cpu",
        source=f"python -m bench.plan --calibrate on {name}",
        flops={key: min(result["flops"][key] for result in results) for key in first["flops"]},
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
    """Return the bytes of memory for one process."""
    if device == "cuda":
        return float(torch.cuda.get_device_properties(0).total_memory)
    total = re.search(r"^MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="utf-8"), re.MULTILINE)
    assert total is not None
    return float(total[1]) * 1024 / processes


def fit(device: Device, measured: Mapping[Case, Measured]) -> Device:
    """Return the device with the rates that predict the measured steps best.

    Fitted are the shares of peaks and links, and the times of a launch and of a collective. They differ from direct
    measurements, because in a step caches are cold and processes wait for each other.
    """
    sent = [kind for kind in KINDS if kind in device.efficiency]
    names = [*PARTS, *sent, LAUNCH, *([LATENCY] if sent else [])]
    rows = [_times(case, device) for case in measured]
    weights = torch.tensor([1 / result.seconds for result in measured.values()], dtype=torch.float64)
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
    """Return the seconds of each part at peak, all launches, each kind of collective on its link, and all latencies."""
    workload, setup = case.workload, case.setup
    seconds: Counter[str] = Counter()
    works = [parts.times(work, setup.accumulation(workload)) for work in parts.micro_batch(workload, setup)]
    without_launch = replace(device, launch=0.0)
    for work in [*works, parts.optimizer(workload, setup)]:
        seconds[work.part] += roofline.seconds(work, without_launch, workload.precision)  # type: ignore[assignment]
        seconds[LAUNCH] += work.launches * device.launch  # type: ignore[assignment]
    for sent in [*model_collectives(workload, setup), *engine_collectives(workload, setup)]:
        on_link = roofline.collective_seconds(sent, setup.layout, replace(device, latency=0.0))
        seconds[sent.kind] += on_link  # type: ignore[assignment]
        latency = roofline.collective_seconds(sent, setup.layout, device) - on_link
        seconds[LATENCY] += latency  # type: ignore[assignment]
    return seconds


def _bounded(x: torch.Tensor, y: torch.Tensor) -> list[float]:
    """Return factors between LEAST and MOST by least squares, near EXPECTED if the measurements do not decide them.

    A factor beyond a bound is set to the bound, and the other factors are fitted again.
    """
    count = x.shape[1]
    fixed: dict[int, float] = {}
    while True:
        free = [index for index in range(count) if index not in fixed]
        fixed_part = sum((x[:, index] * value for index, value in fixed.items()), torch.zeros_like(y))
        if not free:
            break
        prior = TRUST * torch.eye(len(free), dtype=x.dtype)
        system = torch.cat((x[:, free], prior))
        target = torch.cat((y - fixed_part, TRUST * EXPECTED * torch.ones(len(free), dtype=x.dtype)))
        solution = torch.linalg.lstsq(system, target).solution.tolist()
        past = {i: min(max(v, LEAST), MOST) for i, v in zip(free, solution, strict=True) if not LEAST <= v <= MOST}
        if not past:
            return [fixed.get(i, solution[free.index(i)] if i in free else 0.0) for i in range(count)]
        fixed |= past
    return [fixed[index] for index in range(count)]


def as_yaml(device: Device) -> str:
    """Return the device as a file of configs/device."""
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
    """Return a number for YAML 1.1, which needs a decimal point before an exponent, and a sign in it."""
    return str(value) if isinstance(value, int) else f"{value:.3e}"
