"""The engine that a training job asks for."""

from pipeline.model.transformer import Transformer
from pipeline.parallel.deepspeed import Engine
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.optimizer import OptimizerSettings
from pipeline.train.job import TrainJob
from pipeline.train.spikes import StepGuard


def build_engine(job: TrainJob, model: Transformer, mesh: Mesh, guard: StepGuard) -> Engine:
    """model: cut for the mesh, on its device."""
    t = job.train
    return Engine(
        model,
        mesh,
        accumulation=job.batch.groups_per_step // mesh.get_data_parallel_world_size(),
        zero_stage=job.runtime.zero_stage,
        clip=t.clip_norm,
        optimizer=OptimizerSettings(
            kind=t.optimizer,
            betas=(t.beta1, t.beta2),
            epsilon=t.epsilon,
            weight_decay=t.weight_decay,
            expert_rate=t.expert_learning_rate,
        ),
        precision=t.precision,
        ema=t.ema,
        accepts=guard.accepts,
    )
