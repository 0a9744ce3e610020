"""Sums over the micro-batches and processes of one step, and over the steps of a run.

P language pairs.
"""

import math
import time
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.batch.batch import Batch
from pipeline.batch.changed import Counts
from pipeline.model.transformer import Losses
from pipeline.parallel.mesh import Mesh
from pipeline.train.config import TrainConfig
from pipeline.train.measure import StepFlops, counted_once
from pipeline.train.retention import quality
from pipeline.train.routing import RoutingSums


def pair_sums(nll_BT: Tensor, batch: Batch, num_pairs: int) -> Tensor:
    """Return the sum of cross-entropy and the number of target tokens by pair, [P, 2] in float64."""
    valid_T = (batch.decoder_segments_BT > 0).flatten()
    values_T2 = torch.stack((nll_BT.flatten().double(), valid_T.double()), dim=1)
    return values_T2.new_zeros(num_pairs, 2).index_add_(0, batch.pair_BT.flatten(), values_T2)


class StepSums:
    """Sums over one step's micro-batches on this process. `reduce` adds those of the other processes.

    pairs_P2: as `pair_sums` returns it.
    nll: sum of cross-entropy, in nats.
    stop: true if a stop of any process is requested.
    """

    def __init__(self, routing: RoutingSums, num_pairs: int, mesh: Mesh) -> None:
        self.routing, self.mesh = routing, mesh
        self.pairs_P2 = torch.zeros(num_pairs, 2, dtype=torch.float64, device=mesh.device)
        self.nll = 0.0
        self.stop = False
        routing.clear()

    @torch.no_grad()
    def add(self, losses: Losses, batch: Batch) -> None:
        self.pairs_P2 += pair_sums(losses.nll_BT, batch, len(self.pairs_P2))
        self.routing.add(losses.statistics)

    def reduce(self, *, stop: bool) -> None:
        """Sum over all processes, in one all-reduce. stop: true if this process is asked to stop."""
        pairs_P2, values_LX = self.pairs_P2, self.routing.values_LX
        sums = counted_once(torch.cat((pairs_P2.flatten(), values_LX.flatten())), self.mesh)
        sums = torch.cat((sums.new_tensor([float(stop)]), sums))
        dist.all_reduce(sums)
        self.stop, sums = bool(sums[0] > 0), sums[1:]
        self.pairs_P2 = sums[: pairs_P2.numel()].view_as(pairs_P2)
        self.nll = float(self.pairs_P2[:, 0].sum())
        self.routing.values_LX = sums[pairs_P2.numel() :].view_as(values_LX)


class Stopwatch:
    """A context that adds up the seconds spent inside it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds += time.perf_counter() - self._began


@dataclass(kw_only=True)
class Progress:
    """The progress of a run, which every checkpoint has. FLOPs are of training, by kind (`pipeline.model.flops`).

    best_loss, best_score, best_step: of the best validation. There is a score if validations translate.
    augmented: rows that augmentation drew, by kind and outcome; empty without it.
    """

    step: int = 0
    target_tokens: int = 0
    train_seconds: float = 0.0
    nominal_flops: float = 0.0
    useful_flops: float = 0.0
    executed_flops: float = 0.0
    best_loss: float = math.inf
    best_score: float | None = None
    best_step: int = 0
    stale_validations: int = 0
    augmented: Counts = field(default_factory=dict)

    def count(self, rows: Counts) -> None:
        """Add the rows of a step that augmentation drew, by kind and outcome."""
        for kind, outcomes in rows.items():
            total = self.augmented.setdefault(kind, dict.fromkeys(outcomes, 0))
            for outcome, number in outcomes.items():
                total[outcome] += number

    def add(self, target_tokens: int, seconds: float, flops: StepFlops) -> None:
        self.step += 1
        self.target_tokens += target_tokens
        self.train_seconds += seconds
        self.nominal_flops += flops.nominal
        self.useful_flops += flops.useful
        self.executed_flops += flops.executed

    def judge(self, loss: float, score: float | None = None) -> None:
        """Compare a validation with the best one: by the score of its translations if it has one, else by its loss.

        loss: macro-averaged cross-entropy. Of equal scores the one with the lower loss is better.
        """
        if quality(loss, score) > quality(self.best_loss, self.best_score):
            self.best_loss, self.best_score, self.best_step = loss, score, self.step
            self.stale_validations = 0
        else:
            self.stale_validations += 1

    def finished(self, config: TrainConfig) -> bool:
        return self.fraction(config) >= 1.0 or self.out_of_patience(config)

    def out_of_patience(self, config: TrainConfig) -> bool:
        return 0 < config.patience <= self.stale_validations

    def fraction(self, config: TrainConfig) -> float:
        """Return the spent share of the budget, of steps or of tokens, whichever is larger."""
        by_steps = self.step / config.max_steps if config.max_steps else 0.0
        by_tokens = self.target_tokens / config.max_tokens if config.max_tokens else 0.0
        return max(by_steps, by_tokens)

    def to_json(self) -> dict[str, Any]:
        values = {**asdict(self), "best_loss": None if math.isinf(self.best_loss) else self.best_loss}
        unset: dict[str, Any] = {"best_score": None, "augmented": {}}
        return {key: value for key, value in values.items() if key not in unset or value != unset[key]}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Progress":
        loss = values["best_loss"]
        nominal = values["useful_flops"]  # version 0.2.3 and older counted those alone, under this name
        return cls(**{"nominal_flops": nominal, **values, "best_loss": math.inf if loss is None else loss})
