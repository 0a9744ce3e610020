"""Configuration of training; free of torch so that it loads fast."""

from dataclasses import dataclass, field

from pipeline.train.schedule import Schedule, ScheduleConfig
from pipeline.train.spikes import SpikeConfig


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """Which checkpoints are written and stay. It changes no result, so it is in no stage's key.

    best_k: those with the lowest macro-averaged validation cross-entropy. last_n: the newest. every_n: every n-th step
    is saved and stays for good. save_every: steps between saves besides those of validations. 0 is never.
    """

    best_k: int = 1
    last_n: int = 1
    every_n: int = 0
    save_every: int = 0

    def __post_init__(self) -> None:
        for name, least in (("best_k", 1), ("last_n", 1), ("every_n", 0), ("save_every", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"train.checkpoints.{name}={getattr(self, name)} must be at least {least}")

    def most(self, max_steps: int) -> int:
        """Checkpoints on disk at once, the one being written counted. max_steps: 0 is unknown."""
        return self.best_k + self.last_n + 1 + (max_steps // self.every_n if self.every_n else 0)


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Optimisation and its budget.

    max_steps, max_tokens: the budget in optimizer steps or in real target tokens, whichever ends first; 0 is no limit.
    optimizer: adamw, or adafactor as GShard used it, whose rates are relative to the RMS of each matrix and which takes
    neither betas nor epsilon. learning_rate: the peak, reached linearly after warmup_steps; schedule: how it goes on.
    expert_learning_rate: factor on it for the experts. clip_norm: 0 does not clip. validate_every: steps between
    validations, each of which saves a checkpoint. patience: validations without a better macro-averaged cross-entropy
    after which training stops; 0 never stops early. precision: fp32, or bf16 or fp16 by autocast (weights, masters and
    gate stay float32; fp16 with a loss scale that halves where gradients overflow, which skips the step). ema: decay of
    a moving average of the weights, which is then what is validated and decoded with; 0 is none. initialize_from: a
    trained model (directory of the train stage, or one checkpoint) whose weights to start from; a dense feed-forward
    network there becomes every expert here (sparse upcycling, arXiv:2212.05055). spikes: which steps are skipped.
    checkpoints: which are kept.
    """

    max_steps: int
    max_tokens: int
    optimizer: str = "adamw"
    learning_rate: float
    warmup_steps: int
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    expert_learning_rate: float = 1.0
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
    ema: float = 0.0
    initialize_from: str = ""
    spikes: SpikeConfig = field(default_factory=SpikeConfig)
    checkpoints: CheckpointConfig = field(default_factory=CheckpointConfig)

    def __post_init__(self) -> None:
        if self.max_steps <= 0 and self.max_tokens <= 0:
            raise ValueError("train.max_steps and train.max_tokens are both 0; give a budget in one of them")
        for name in ("learning_rate", "expert_learning_rate"):
            if not getattr(self, name) > 0:
                raise ValueError(f"train.{name}={getattr(self, name)} must be positive")
        for name in ("validate_every", "log_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"train.{name}={getattr(self, name)} must be at least 1")
        for name in ("clip_norm", "weight_decay", "patience", "warmup_steps"):
            if getattr(self, name) < 0:
                raise ValueError(f"train.{name}={getattr(self, name)} must not be negative")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"train.label_smoothing={self.label_smoothing} must lie in [0, 1)")
        if not 0 <= self.ema < 1:
            raise ValueError(f"train.ema={self.ema} must lie in [0, 1); 0.999 is usual, 0 keeps no average")
        if self.precision not in ("fp32", "bf16", "fp16"):
            raise ValueError(f"train.precision={self.precision!r} is not one of fp32, bf16, fp16")
        if self.optimizer not in ("adamw", "adafactor"):
            raise ValueError(f"train.optimizer={self.optimizer!r} is not one of adamw, adafactor")
        if self.optimizer == "adafactor":
            for name, default in (("beta1", 0.9), ("beta2", 0.98), ("epsilon", 1e-9)):
                if getattr(self, name) != default:
                    raise ValueError(f"train.{name}={getattr(self, name)} means nothing to adafactor; leave it out")
        self._schedule()

    def learning_rate_at(self, step: int) -> float:
        """Of optimizer step `step`, counted from 1."""
        return self._schedule()(step)

    def _schedule(self) -> Schedule:
        return Schedule.of(self.schedule, peak=self.learning_rate, warmup=self.warmup_steps, max_steps=self.max_steps)
