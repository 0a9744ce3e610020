"""One of two processes with the experts cut over both: steps of the real engine with every mode of recomputation.

Exits with an error that names the mode and the tensor. Run by test_recompute.py with RANK and BABELSHARD_RENDEZVOUS.
"""

import gc
import os

import torch
import torch.distributed as dist

from pipeline.model.noise import seed_group
from pipeline.parallel.deepspeed import Engine
from pipeline.parallel.layout import Layout
from pipeline.parallel.mesh import Mesh, start_processes_group
from pipeline.parallel.optimizer import OptimizerSettings
from pipeline.parallel.partition import partition
from pipeline.verify.batches import synthetic_step
from pipeline.verify.config import Case
from pipeline.verify.runs import built

STEPS, GROUPS = 2, 4
CASES = [(1, "dropless"), (2, "top2")]  # ZeRO stage, gate: ragged all-to-alls and equal ones


def run(zero_stage, gate, mode, mesh):
    """Losses of this process and its weights after the steps."""
    model = built(Case(world=2, ep=2, zero_stage=zero_stage, groups=GROUPS, precision="fp32", gate=gate))
    partition(model, mesh)
    model.recompute(mode)
    settings = {"clip": 1.0, "optimizer": OptimizerSettings(weight_decay=0.01), "precision": "fp32"}
    engine = Engine(model, mesh, accumulation=GROUPS // 2, zero_stage=zero_stage, **settings)
    engine.train()
    found = {}
    for number in range(1, STEPS + 1):
        step = synthetic_step(number, GROUPS)
        for group in range(dist.get_rank(), GROUPS, 2):
            seed_group(1, number, group)
            losses = engine(step.groups[group], label_smoothing=0.1)
            share = losses.share(target_tokens=step.target_tokens, nonempty_groups=step.nonempty_groups)
            engine.backward(share)
            engine.step(1e-2)
            found[f"loss {number} {group}"] = share.detach()
    return found | {name: p.detach().clone() for name, p in model.named_parameters()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    device = torch.device("cpu")
    start_processes_group(
        init_method=os.environ["BABELSHARD_RENDEZVOUS"],
        rank=int(os.environ["RANK"]),
        world=2,
        device=device,
        timeout=60,
    )
    mesh = Mesh.build(Layout.gshard(2, 2), device)
    for zero_stage, gate in CASES:
        reference = run(zero_stage, gate, "none", mesh)
        for mode in ("selective", "layers", "all"):
            for name, value in run(zero_stage, gate, mode, mesh).items():
                assert torch.equal(value, reference[name]), f"ZeRO {zero_stage} {gate} {mode}: {name}"
            gc.collect()  # engines hold circles
            print(zero_stage, gate, mode, flush=True)
    dist.barrier()
    os._exit(0)  # as the product's processes end: gloo's destructors abort where a peer is gone already
