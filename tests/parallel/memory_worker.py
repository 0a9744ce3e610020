"""A process that trains a step of several configurations and prints predicted over counted peaks of memory."""

import itertools
import json
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from bench.plan.case import Case
from bench.plan.worker import build, step, tokens
from pipeline.engine.deepspeed import Engine
from pipeline.engine.optimizer import OptimizerSettings
from pipeline.jobs.matmul import choose_matmul
from pipeline.jobs.rendezvous import join_job
from pipeline.parallel.mesh import Mesh
from pipeline.plan.memory import phases, state_of
from tests.plans import device_of

SMALL = Case(dim=64, layers=2, experts=8, rows=8, length=64, vocabulary=2000, groups=2)
CASES = [
    SMALL,
    replace(SMALL, recompute="all", optimizer="adafactor"),
    replace(SMALL, recompute="selective", groups=1),
    replace(SMALL, zero_stage=2),
    replace(SMALL, experts=0, precision="bf16"),
    replace(SMALL, precision="bf16", biases=True),
]


def living(case: Case, directory: Path) -> float:
    """Return the most bytes at once in a step of the real engine, by torch's profiler of memory.

    The least of three steps counts, because a thread of a busy machine may release a block late.
    """
    mesh = Mesh.build(case.setup.layout, torch.device("cpu"))
    engine = Engine(
        build(case, mesh),
        mesh,
        accumulation=case.setup.accumulation(case.workload),
        zero_stage=case.zero_stage,
        clip=1.0,
        optimizer=OptimizerSettings(kind=case.optimizer),
        precision=case.precision,
    )
    batch = tokens(case)
    step(engine, mesh, case, batch, 0)
    state = state_of(case.workload, case.setup)
    most = []
    for number in range(1, 4):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            step(engine, mesh, case, batch, number)
        profile.export_chrome_trace(str(directory / "trace.json"))
        events = json.loads((directory / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
        changes = sorted((e["ts"], e["args"]["Bytes"]) for e in events if e["name"] == "[memory]")
        most.append(max(itertools.accumulate((change for _, change in changes), initial=0)))
    return state.weights + state.optimizer + min(most)


def main() -> None:
    torch.set_num_threads(1)
    device = device_of(kind="cpu", float32_attention=choose_matmul() == "onednn")
    join_job(device=torch.device("cpu"), timeout=60)
    with tempfile.TemporaryDirectory() as directory:
        for case in CASES:
            predicted = max(phase.total for phase in phases(case.workload, case.setup, device))
            print(f"{case.name}: {predicted / living(case, Path(directory)):.3f}", flush=True)


if __name__ == "__main__":
    main()
