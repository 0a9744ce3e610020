"""One of four processes compares the messages of one step with the formulas, under several layouts.

An error names the difference. Run by test_collectives.py with RANK, WORLD_SIZE and BABELSHARD_RENDEZVOUS.
"""

from dataclasses import replace

import torch
import torch.distributed as dist

import pipeline.plan.collectives as formulas
from pipeline.engine.deepspeed import Engine
from pipeline.engine.optimizer import OptimizerSettings
from pipeline.jobs.rendezvous import join_job
from pipeline.model.config import ModelConfig
from pipeline.model.initialization import initialize
from pipeline.model.transformer import Transformer
from pipeline.parallel.layout import Layout
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.partition import partition
from pipeline.plan.collectives import engine_collectives, model_collectives
from pipeline.plan.workload import Setup, Workload
from pipeline.verify.batches import SHAPE, VOCABULARY, synthetic_step
from tests.collectives import Counted, sums_of
from tests.gates import moe_of

GSHARD = {"G": ("data", "expert"), "E": ("expert",)}
MODEL = {**GSHARD, "H": ("model",), "N": ("model",), "V": ("model",)}
DATA = {"G": ("data",), "E": ("expert",)}
WORKLOAD = Workload(
    recipe="small",
    model=ModelConfig(
        dim=16, ffn_dim=32, heads=4, encoder_layers=2, decoder_layers=2, dropout=0.1, moe=moe_of("top2", num_experts=8)
    ),
    source_vocabulary=VOCABULARY,
    target_vocabulary=VOCABULARY,
    shared=False,
    shape=SHAPE,
    groups_per_step=8,
    precision="fp32",
    optimizer="adamw",
    ema=False,
    max_tokens=0,
)


def setup_of(data, expert, model, table, zero_stage):
    layout = Layout(table=table, sizes={"data": data, "expert": expert, "model": model})
    return Setup(layout=layout, zero_stage=zero_stage, recompute="none")


def engine_of(workload, setup, mesh):
    sizes = {"source_vocabulary": workload.source_vocabulary, "target_vocabulary": workload.target_vocabulary}
    model = Transformer(workload.model, **sizes, shared=workload.shared, max_positions=max(SHAPE.source, SHAPE.target))
    initialize(model, 1)
    partition(model, mesh)
    return Engine(
        model,
        mesh,
        accumulation=setup.accumulation(workload),
        zero_stage=setup.zero_stage,
        clip=1.0,
        optimizer=OptimizerSettings(kind=workload.optimizer, rate_factors=dict(workload.rate_factors)),
        precision=workload.precision,
    )


def check(name, workload, setup, bucket=None):
    """Compare one step of the engine with the formulas. bucket: elements of a bucket, small so that there are many."""
    mesh = Mesh.build(setup.layout, torch.device("cpu"))
    engine = engine_of(workload, setup, mesh)
    usual = formulas.BUCKET
    if bucket is not None:
        engine.zero.reduce_bucket_size = formulas.BUCKET = bucket
    step = synthetic_step(1, workload.groups_per_step)
    with Counted() as counted:
        for group in range(mesh.batch_rank, workload.groups_per_step, mesh.batch_size):
            losses = engine(step.groups[group], label_smoothing=0.1)
            engine.backward(losses.share(target_tokens=step.target_tokens, nonempty_groups=step.nonempty_groups))
            engine.step(1e-3)
    assert engine.updates == 1
    expected = sums_of([*model_collectives(workload, setup), *engine_collectives(workload, setup)], mesh)
    formulas.BUCKET = usual
    assert counted.sums == expected, f"{name}: counted {counted.sums}, formulas say {expected}"


def main():
    torch.set_num_threads(1)
    join_job(device=torch.device("cpu"), timeout=120)
    once = replace(WORKLOAD, groups_per_step=4)
    adafactor = replace(once, optimizer="adafactor")
    check("ep 1", once, setup_of(4, 1, 1, GSHARD, 1))
    check("ep 2, ZeRO-1, accumulating", WORKLOAD, setup_of(2, 2, 1, GSHARD, 1))
    check("data 2 x model 2, bf16", replace(once, groups_per_step=2, precision="bf16"), setup_of(2, 1, 2, MODEL, 1))
    check("expert 2 x model 2, ZeRO-2, Adafactor, accumulating", adafactor, setup_of(1, 2, 2, MODEL, 2))
    check("groups on data alone, many buckets", once, setup_of(2, 2, 1, DATA, 1), bucket=2100)
    check("ep 2, ZeRO-2, many buckets", once, setup_of(2, 2, 1, GSHARD, 2), bucket=2100)
    biased = replace(once, model=replace(once.model, biases=True))
    check("biases, ep 2", biased, setup_of(2, 2, 1, GSHARD, 1))
    factors = (("encoder", 2.0), ("experts", 0.5), ("norms", 0.5))
    check(
        "a rate for each component, Adafactor", replace(adafactor, rate_factors=factors), setup_of(2, 2, 1, GSHARD, 1)
    )
    check("parameters larger than a bucket", once, setup_of(2, 2, 1, GSHARD, 1), bucket=700)
    if dist.get_rank() == 0:
        print("equal")


if __name__ == "__main__":
    main()
