"""Configuration of training; free of torch so that it loads fast."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Optimisation and its budget.

    max_steps, max_tokens: the budget in optimizer steps or in real target tokens, whichever ends first; 0 is no limit.
    learning_rate: the peak, reached after warmup_steps; then it falls with the inverse square root of the step.
    clip_norm: 0 does not clip. validate_every: steps between validations, each of which saves a checkpoint.
    patience: validations without a better macro-averaged cross-entropy after which training stops; 0 never stops early.
    precision: fp32 or bf16 (autocast; weights, masters and gate stay float32).
    """

    max_steps: int
    max_tokens: int
    learning_rate: float
    warmup_steps: int
    beta1: float = 0.9
    beta2: float = 0.98
    epsilon: float = 1e-9
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    label_smoothing: float = 0.1
    validate_every: int
    patience: int = 0
    precision: str = "fp32"
    seed: int = 1
    log_every: int = 10

    def __post_init__(self) -> None:
        if self.max_steps <= 0 and self.max_tokens <= 0:
            raise ValueError("train.max_steps and train.max_tokens are both 0; give a budget in one of them")
        if not self.learning_rate > 0:
            raise ValueError(f"train.learning_rate={self.learning_rate} must be positive")
        for name in ("warmup_steps", "validate_every", "log_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"train.{name}={getattr(self, name)} must be at least 1")
        for name in ("clip_norm", "weight_decay", "patience"):
            if getattr(self, name) < 0:
                raise ValueError(f"train.{name}={getattr(self, name)} must not be negative")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"train.label_smoothing={self.label_smoothing} must lie in [0, 1)")
        if self.precision not in ("fp32", "bf16"):
            raise ValueError(f"train.precision={self.precision!r} is not one of fp32, bf16")

    def learning_rate_at(self, step: int) -> float:
        """Of optimizer step `step`, counted from 1."""
        return self.learning_rate * min(step / self.warmup_steps, math.sqrt(self.warmup_steps / step))
