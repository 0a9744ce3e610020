"""Running sums: of one step over its micro-batches and processes, and of a run over its steps."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist

from pipeline.model.transformer import Losses
from pipeline.train.config import TrainConfig
from pipeline.train.routing import RoutingSums


class StepSums:
    """Sums over one step's micro-batches on this process; `reduce` makes them those of all processes, in one
    all-reduce."""

    def __init__(self, routing: RoutingSums) -> None:
        self.routing = routing
        self._nll = torch.zeros((), dtype=torch.float64, device=routing.values_LX.device)
        self.nll = 0.0
        self.stop = False
        routing.clear()

    def add(self, losses: Losses) -> None:
        self._nll += losses.nll_BT.sum().double()
        self.routing.add(losses.statistics)

    def reduce(self, *, stop: bool) -> None:
        """stop: whether this process was asked to stop; `self.stop` then says whether any was."""
        values_LX = self.routing.values_LX
        sums = torch.cat((self._nll.view(1), self._nll.new_tensor([float(stop)]), values_LX.flatten()))
        dist.all_reduce(sums)
        self.nll, self.stop = float(sums[0]), bool(sums[1] > 0)
        self.routing.values_LX = sums[2:].view_as(values_LX)


@dataclass(kw_only=True)
class Progress:
    """Where a run stands; part of every checkpoint."""

    step: int = 0
    target_tokens: int = 0
    train_seconds: float = 0.0
    useful_flops: float = 0.0
    executed_flops: float = 0.0
    best_loss: float = math.inf
    best_step: int = 0
    stale_validations: int = 0

    def add(self, target_tokens: int, seconds: float, useful: float, executed: float) -> None:
        self.step += 1
        self.target_tokens += target_tokens
        self.train_seconds += seconds
        self.useful_flops += useful
        self.executed_flops += executed

    def judge(self, loss: float) -> None:
        """A validation's macro-averaged cross-entropy."""
        if loss < self.best_loss:
            self.best_loss, self.best_step, self.stale_validations = loss, self.step, 0
        else:
            self.stale_validations += 1

    def finished(self, config: TrainConfig) -> bool:
        return self.fraction(config) >= 1.0 or self.out_of_patience(config)

    def out_of_patience(self, config: TrainConfig) -> bool:
        return 0 < config.patience <= self.stale_validations

    def fraction(self, config: TrainConfig) -> float:
        """Share of the budget that is spent, by steps or tokens, whichever is further."""
        by_steps = self.step / config.max_steps if config.max_steps else 0.0
        by_tokens = self.target_tokens / config.max_tokens if config.max_tokens else 0.0
        return max(by_steps, by_tokens)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "best_loss": None if math.isinf(self.best_loss) else self.best_loss}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Progress":
        loss = values["best_loss"]
        return cls(**{**values, "best_loss": math.inf if loss is None else loss})
