"""One of two processes that share the experts compares steps of the real engine, with every mode of recomputation.

An error names the mode and the tensor. Run by test_recompute.py with RANK and BABELSHARD_RENDEZVOUS.
"""

import gc
import os

import torch
import torch.distributed as dist

from pipeline.engine.deepspeed import Engine
from pipeline.engine.optimizer import OptimizerSettings
from pipeline.jobs.rendezvous import join_job
from pipeline.model.noise import seed_group
from pipeline.parallel.layout import Layout
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.partition import partition
from pipeline.verify.batches import synthetic_step
from pipeline.verify.config import Case
from pipeline.verify.runs import build_model

STEPS, GROUPS = 2, 4
CASES = [(1, "dropless"), (2, "top2")]  # ZeRO stage, gate: ragged all-to-alls and equal ones


def run(zero_stage, gate, mode, mesh):
    """Return the losses of this process, and its weights after the steps."""
    model = build_model(Case(world=2, ep=2, zero_stage=zero_stage, groups=GROUPS, precision="fp32", gate=gate))
    partition(model, mesh)
    model.recompute(mode)
    settings = {"clip": 1.0, "optimizer": OptimizerSettings(weight_decay=0.01), "precision": "fp32"}
    engine = Engine(model, mesh, accumulation=GROUPS // 2, zero_stage=zero_stage, **settings)
    engine.train()
    values = {}
    for number in range(1, STEPS + 1):
        step = synthetic_step(number, GROUPS)
        for group in range(dist.get_rank(), GROUPS, 2):
            seed_group(1, number, group)
            losses = engine(step.groups[group], label_smoothing=0.1)
            share = losses.share(target_tokens=step.target_tokens, nonempty_groups=step.nonempty_groups)
            engine.backward(share)
            engine.step(1e-2)
            values[f"loss {number} {group}"] = share.detach()
    return values | {name: p.detach().clone() for name, p in model.named_parameters()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    device = torch.device("cpu")
    join_job(device=device, timeout=60)
    mesh = Mesh.build(Layout.gshard(2, 2), device)
    for zero_stage, gate in CASES:
        reference = run(zero_stage, gate, "none", mesh)
        for mode in ("selective", "layers", "all"):
            for name, value in run(zero_stage, gate, mode, mesh).items():
                assert torch.equal(value, reference[name]), f"ZeRO {zero_stage} {gate} {mode}: {name}"
            gc.collect()  # engines have reference cycles
            print(zero_stage, gate, mode, flush=True)
    dist.barrier()
    os._exit(0)  # like a real job, because gloo's destructors abort if a peer is gone
