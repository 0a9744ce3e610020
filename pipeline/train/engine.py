"""Build the engine of a training job."""

from pipeline.engine.deepspeed import Engine
from pipeline.engine.optimizer import OptimizerSettings
from pipeline.model.transformer import Transformer
from pipeline.parallel.mesh import Mesh
from pipeline.train.job import TrainJob
from pipeline.train.spikes import StepGuard


def build_engine(job: TrainJob, model: Transformer, mesh: Mesh, guard: StepGuard) -> Engine:
    """Return the engine for a model that is cut for the mesh and on its device."""
    t = job.train
    return Engine(
        model,
        mesh,
        accumulation=job.batch.groups_per_step // mesh.batch_size,
        zero_stage=job.runtime.zero_stage,
        clip=t.clip_norm,
        optimizer=OptimizerSettings(
            kind=t.optimizer,
            betas=(t.beta1, t.beta2),
            epsilon=t.epsilon,
            weight_decay=t.weight_decay,
            rate_factors=t.rate_factors,
        ),
        precision=t.precision,
        ema=t.ema,
        accepts=guard.accepts,
    )
