"""The configuration of training. This module does not import torch, so that it loads fast."""

import math
from dataclasses import dataclass, field, fields

from pipeline.engine.optimizer_kinds import optimizer_kind
from pipeline.model.components import ADAPTERS, ALL, check_names
from pipeline.model.lora import LoraConfig
from pipeline.train.schedule import Schedule, ScheduleConfig
from pipeline.train.spikes import SpikeConfig

LOSS = "loss"
BY_COMMAND = ("comet", "cometkiwi")
VALIDATE_METRICS = (LOSS, "chrf++", "chrf", "bleu", *BY_COMMAND)
# Settings of a validation that are left out of keys and records where they have no effect, as in older versions.
VALIDATE_UNSET = {"validate_metric": LOSS, "validate_lines": 200, "validate_beam": 1, "validate_command": ""}


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """The checkpoints that are written and kept. They do not affect the result, so no stage's key contains them.

    best_k: number of kept checkpoints with the best validation by train.validate_metric.
    last_n: number of kept newest checkpoints.
    every_n: every n-th step is saved and always kept; 0 is never.
    save_every: steps between saves, in addition to one at each validation; 0 is never.
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
        """Return the largest number of checkpoints on disk, with the one being written. max_steps: 0 is unknown."""
        return self.best_k + self.last_n + 1 + (max_steps // self.every_n if self.every_n else 0)


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Optimisation and its budget.

    max_steps, max_tokens: the budget in optimizer steps or real target tokens, whichever ends first; 0 is no limit.
    optimizer: adamw, or adafactor as GShard used it. Rates of adafactor are relative to the RMS of each matrix.
    learning_rate: the peak of the rate.
    warmup_steps: steps in which the rate rises linearly to its peak.
    schedule: the rate after warmup_steps.
    expert_learning_rate: factor on the rate of the experts.
    learning_rate_factors: factors on the rate of other components, which have the names of trainable. The rate of a
        parameter with a kind and a side, as attention of the encoder, is multiplied by both factors.
    beta1: decay of the first moment of adamw.
    beta2: decay of the second moment of adamw.
    epsilon: added to the denominator of adamw.
    weight_decay: decoupled weight decay, in units of the learning rate.
    clip_norm: the largest gradient norm; 0 does not clip.
    label_smoothing: share of the target distribution that is spread over the vocabulary, in [0, 1).
    validate_every: steps between validations. Each one saves a checkpoint.
    validate_metric: the measure by which a validation is better than another one: loss, the macro-averaged
        cross-entropy, or the mean over pairs of chrf++, chrf, bleu, comet or cometkiwi, of translations of development
        sentences. Of equal scores the one with the lower loss is better.
    validate_lines: development sentences of each pair that a validation by another measure than loss translates, evenly
        spaced over all of them; all if there are fewer.
    validate_beam: beam of these translations; 1 is greedy search.
    validate_command: the command that computes comet or cometkiwi, as those of score.commands.
    patience: validations without a better one after which training stops; 0 never stops early.
    precision: fp32, bf16 or fp16, by default fp32 on a CPU and bf16 on a GPU. bf16 and fp16 are by autocast: weights,
        masters and gate stay float32. fp16 has a loss scale, which halves when gradients overflow. Such a step is
        skipped.
    seed: decides initial weights, the order of the data, dropout and routing noise.
    log_every: steps between records in metrics.jsonl.
    ema: decay of a moving average of the weights, which validation and decoding then use; 0 is none.
    trainable: the parameters that train: all, or a list of embeddings, norms, attention, feed_forward, experts,
        routers, encoder and decoder. The others are frozen: they keep their bits, and have no gradient and no state of
        the optimizer.
    lora: adapters, which then train alone, or null. They need initialize_from. Decoding and exports merge them into
        the weights.
    initialize_from: a trained model whose weights to start from: the name of a finished run, the directory of a train
        stage, or one checkpoint. A dense feed-forward network there becomes every expert here (sparse upcycling,
        arXiv:2212.05055).
    spikes: the steps that are skipped.
    checkpoints: the checkpoints that are kept.
    """

    max_steps: int
    max_tokens: int
    optimizer: str = "adamw"
    learning_rate: float
    warmup_steps: int
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    expert_learning_rate: float = 1.0
    learning_rate_factors: dict[str, float] = field(default_factory=dict)
    beta1: float = 0.9
    beta2: float = 0.98
    epsilon: float = 1e-9
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    label_smoothing: float = 0.1
    validate_every: int
    validate_metric: str = LOSS
    validate_lines: int = 200
    validate_beam: int = 1
    validate_command: str = ""
    patience: int = 0
    precision: str = "fp32"
    seed: int = 1
    log_every: int = 10
    ema: float = 0.0
    trainable: str | list[str] = ALL
    lora: LoraConfig | None = None
    initialize_from: str = ""
    spikes: SpikeConfig = field(default_factory=SpikeConfig)
    checkpoints: CheckpointConfig = field(default_factory=CheckpointConfig)

    def __post_init__(self) -> None:
        if self.max_steps <= 0 and self.max_tokens <= 0:
            raise ValueError("train.max_steps and train.max_tokens are both 0; give a budget in one of them")
        for name in ("learning_rate", "expert_learning_rate"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"train.{name}={getattr(self, name)} must be positive and finite")
        for name in ("validate_every", "validate_lines", "validate_beam", "log_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"train.{name}={getattr(self, name)} must be at least 1")
        for name in ("max_steps", "max_tokens", "clip_norm", "weight_decay", "patience", "warmup_steps"):
            if getattr(self, name) < 0:
                raise ValueError(f"train.{name}={getattr(self, name)} must not be negative")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"train.label_smoothing={self.label_smoothing} must lie in [0, 1)")
        if not 0 <= self.ema < 1:
            raise ValueError(f"train.ema={self.ema} must lie in [0, 1); 0.999 is usual, 0 keeps no average")
        if self.precision not in ("fp32", "bf16", "fp16"):
            raise ValueError(f"train.precision={self.precision!r} is not one of fp32, bf16, fp16")
        defaults = {setting.name: setting.default for setting in fields(self)}
        for name in optimizer_kind(self.optimizer, "train.optimizer").unused:
            if (value := getattr(self, name)) != defaults[name]:
                raise ValueError(f"train.{name}={value} has no effect with {self.optimizer}; leave it out")
        self._check_validation()
        self._check_components()
        self._schedule()

    @property
    def translates(self) -> bool:
        """True if validations translate development sentences."""
        return self.validate_metric != LOSS

    @property
    def components(self) -> str | list[str]:
        """The choice of parameters that train, for `pipeline.model.components.is_trainable`."""
        return self.trainable if self.lora is None else ADAPTERS

    @property
    def rate_factors(self) -> dict[str, float]:
        """The factors on the rate of components, with that of the experts."""
        return {"experts": self.expert_learning_rate, **self.learning_rate_factors}

    def _check_validation(self) -> None:
        if self.validate_metric not in VALIDATE_METRICS:
            raise ValueError(
                f"train.validate_metric={self.validate_metric!r} is not one of {', '.join(VALIDATE_METRICS)}"
            )
        for name, default in VALIDATE_UNSET.items():
            if not self.translates and (value := getattr(self, name)) != default:
                raise ValueError(
                    f"train.{name}={value} is of translations, which train.validate_metric=loss does not make; set "
                    "train.validate_metric=chrf++, or leave it out"
                )

        if (self.validate_metric in BY_COMMAND) != bool(self.validate_command):
            raise ValueError(
                f"train.validate_metric={self.validate_metric} with train.validate_command={self.validate_command!r}: "
                f"{' and '.join(BY_COMMAND)} need a command, and no other metric has one (docs/scoring.md)"
            )

    def _check_components(self) -> None:
        if isinstance(self.trainable, str) and self.trainable != ALL:
            raise ValueError(f"train.trainable={self.trainable!r} is neither all nor a list, as [embeddings,norms]")
        if not self.trainable:
            raise ValueError("train.trainable=[] trains nothing; name components, as [embeddings,norms], or all")
        if self.trainable != ALL:
            check_names("train.trainable", self.trainable)
        if self.lora is not None and self.trainable != ALL:
            raise ValueError(
                f"train.trainable={self.trainable}: with train.lora adapters train alone; leave one of them out"
            )
        if self.lora is not None and not self.initialize_from:
            raise ValueError(
                "train.lora: adapters belong to a trained model; name it by train.initialize_from, or leave this out"
            )
        if self.trainable != ALL and not self.initialize_from:
            raise ValueError(
                f"train.trainable={self.trainable}: the other components would keep random weights; name a trained "
                "model by train.initialize_from, or leave this out"
            )
        check_names("train.learning_rate_factors", self.learning_rate_factors)
        if "experts" in self.learning_rate_factors:
            raise ValueError(
                "train.learning_rate_factors.experts: set train.expert_learning_rate, which is this factor"
            )
        for name, factor in self.learning_rate_factors.items():
            if not 0 < factor < math.inf:
                raise ValueError(
                    f"train.learning_rate_factors.{name}={factor} must be positive and finite; leave components that "
                    "do not train out of train.trainable"
                )

    def learning_rate_at(self, step: int) -> float:
        """Return the learning rate of an optimizer step, counted from 1."""
        return self._schedule()(step)

    def _schedule(self) -> Schedule:
        return Schedule.of(self.schedule, peak=self.learning_rate, warmup=self.warmup_steps, max_steps=self.max_steps)
