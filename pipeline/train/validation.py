"""Compute the cross-entropy of every pair's development sentences."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.distributed as dist

from pipeline.batch.assembly import assemble
from pipeline.batch.config import BatchConfig
from pipeline.batch.packing import Step, pack_steps
from pipeline.engine.deepspeed import Engine
from pipeline.model.transformer import Transformer
from pipeline.parallel.mesh import Mesh
from pipeline.train.job import TrainJob
from pipeline.train.measure import counted_once
from pipeline.train.routing import RoutingSums
from pipeline.train.totals import pair_sums
from pipeline.vocab.encoded import EncodedSplit
from pipeline.vocab.vocabulary import Vocabulary

if TYPE_CHECKING:
    from pipeline.train.sample_score import SampleScore


@dataclass(frozen=True, kw_only=True)
class ValidationResult:
    """The result of one validation, each pair counting the same.

    loss: cross-entropy in nats per target token.
    score: of translations by `train.validate_metric`; None if it is the loss.
    """

    loss: float
    score: float | None = None


class Validation:
    """Development sentences in a fixed order, in groups of the training shapes."""

    def __init__(self, dev: Sequence[EncodedSplit], batch: BatchConfig, mesh: Mesh) -> None:
        self.dev, self.mesh, self.device = dev, mesh, mesh.device
        self.steps = validation_steps(dev, batch)

    @torch.no_grad()
    def run(self, engine: Engine, routing: RoutingSums) -> list[float]:
        """Return nats per target token, by pair, without noise or drops. A collective.

        Idle processes run empty groups, because the others would wait for them.

        routing: gets the experts' usage.
        """
        engine.train(False)
        sums_P2 = torch.zeros(len(self.dev), 2, dtype=torch.float64, device=self.device)
        for step in self.steps:
            for micro in range(self.mesh.batch_rank, step.num_groups, self.mesh.batch_size):
                batch = assemble(step.group(micro), step.shape, self.dev).to(self.device)
                losses = engine(batch, label_smoothing=0.0)
                sums_P2 += pair_sums(losses.nll_BT, batch, len(self.dev))
                routing.add(losses.statistics)
        sums_P2 = counted_once(sums_P2, self.mesh)
        dist.all_reduce(sums_P2)
        return (sums_P2[:, 0] / sums_P2[:, 1]).tolist()


def sample_score(
    job: TrainJob, dev: Sequence[EncodedSplit], vocabulary: Vocabulary, model: Transformer, mesh: Mesh
) -> "SampleScore | None":
    """Return what scores translations of the development sentences; None if `train.validate_metric` is the loss."""
    if not job.train.translates:
        return None
    from pipeline.train.sample_score import SampleScore  # late, because it loads sacreBLEU

    return SampleScore(job, dev, vocabulary, model, mesh)


def validation_steps(dev: Sequence[EncodedSplit], batch: BatchConfig) -> list[Step]:
    """Pack all development sentences into steps."""
    named = [np.stack((np.full(len(d), p), np.arange(len(d))), axis=1) for p, d in enumerate(dev)]
    lengths = [np.stack((d.source_lengths, d.target_lengths), axis=1) for d in dev]
    steps, _ = pack_steps(
        np.concatenate(named).astype(np.int64),
        np.concatenate(lengths).astype(np.int64),
        shapes=batch.shapes,
        groups_per_step=batch.groups_per_step,
        rng=None,
    )
    return steps
