"""Running sums: of one step over its micro-batches and processes, and of a run over its steps."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist

from pipeline.model.transformer import Losses
from pipeline.train.config import TrainConfig


class StepSums:
    """Sums over one step's micro-batches on this process; `reduce` makes them those of all processes, in one
    all-reduce."""

    def __init__(self, device: torch.device) -> None:
        self._sums = torch.zeros(5, dtype=torch.float64, device=device)
        self.nll = self.aux = 0.0
        self.stop = False
        self._dropped_first = self._kept = self._tokens = 0.0

    def add(self, losses: Losses) -> None:
        routed = torch.zeros(4, dtype=torch.float64, device=self._sums.device)
        for s in losses.statistics:
            routed += torch.stack([v.detach().double() for v in (s.aux_loss, s.dropped_first, s.kept, s.tokens)])
        self._sums += torch.cat((losses.nll_BT.sum().double().view(1), routed))

    def reduce(self, *, stop: bool) -> None:
        """stop: whether this process was asked to stop; `self.stop` then says whether any was."""
        sums = torch.cat((self._sums, self._sums.new_tensor([float(stop)])))
        dist.all_reduce(sums)
        self.nll, self.aux, self._dropped_first, self._kept, self._tokens, asked = sums.tolist()
        self.stop = asked > 0

    def routing(self) -> dict[str, float]:
        """drop_rate: first choices lost to full experts; experts_per_token: choices that were served. Empty for a
        dense model."""
        if not self._tokens:
            return {}
        return {
            "drop_rate": self._dropped_first / self._tokens,
            "experts_per_token": self._kept / self._tokens,
        }


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
