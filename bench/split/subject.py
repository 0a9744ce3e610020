"""The training step that is split: GShard's MoE(16E, 12L) of `bench.train`, or a tiny one."""

from bench.train.contenders import CUDA, QUICK, with_experts
from pipeline.parallel.layout import Layout
from pipeline.plan.workload import Setup, Workload

VOCABULARIES = {True: (3000, 3000), False: (64000, 32000)}  # source and target


def workload_of(*, quick: bool, precision: str) -> Workload:
    scale = QUICK if quick else CUDA
    batch = scale.batch(peers=False)
    source, target = VOCABULARIES[quick]
    model = with_experts(scale.models[0], scale.experts)
    return Workload(
        recipe=f"d={model.dim} E={scale.experts} {model.encoder_layers}+{model.decoder_layers}",
        model=model,
        source_vocabulary=source,
        target_vocabulary=target,
        shared=False,
        shape=batch.shapes[0],
        groups_per_step=batch.groups_per_step,
        precision=precision,
        optimizer="adamw",
        ema=False,
        max_tokens=0,
    )


SETUP = Setup(layout=Layout.gshard(1, 1), zero_stage=1, recompute="none")
