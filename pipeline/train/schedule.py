"""The learning rate as a function of the step. This module does not import torch, so that it loads fast."""

import math
from dataclasses import dataclass

INVERSE_SQUARE_ROOT, WARMUP_HOLD = "inverse_square_root", "warmup_hold_inverse_square_root"
LINEAR, COSINE, STABLE = "linear", "cosine", "warmup_stable_decay"
USED = {  # the fields of ScheduleConfig that each kind uses
    INVERSE_SQUARE_ROOT: (),
    WARMUP_HOLD: ("hold_steps",),
    LINEAR: ("decay_steps", "floor"),
    COSINE: ("decay_steps", "floor"),
    STABLE: ("hold_steps", "decay_steps", "floor"),
}


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """The learning rate after train.warmup_steps steps, in which it rises linearly to its peak.

    kind: `inverse_square_root` falls with the root of the step. `warmup_hold_inverse_square_root` does so after
        hold_steps at the peak. `linear` and `cosine` (half a wave, arXiv:1608.03983) fall to the floor over
        decay_steps. `warmup_stable_decay` (arXiv:2404.06395) keeps the peak for hold_steps and then falls linearly over
        decay_steps.
    hold_steps: by default, for warmup_stable_decay, all other steps of train.max_steps.
    decay_steps: by default, for linear and cosine, all other steps of train.max_steps.
    floor: the rate at the end of the decay and afterwards.
    """

    kind: str = INVERSE_SQUARE_ROOT
    hold_steps: int = 0
    decay_steps: int = 0
    floor: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in USED:
            raise ValueError(f"train.schedule.kind={self.kind!r} is not one of {', '.join(USED)}")
        for name in ("hold_steps", "decay_steps", "floor"):
            value = getattr(self, name)
            if value < 0:
                raise ValueError(f"train.schedule.{name}={value} must not be negative")
            if value and name not in USED[self.kind]:
                users = " or ".join(kind for kind, used in USED.items() if name in used)
                raise ValueError(
                    f"train.schedule.{name}={value} has no effect with {self.kind}; set it to 0, or {users}"
                )
        if self.kind == STABLE and not self.decay_steps:
            raise ValueError(f"train.schedule.decay_steps=0 with {STABLE}: give the steps of its decay")


@dataclass(frozen=True)
class Schedule:
    """The learning rate of each step, with all numbers of steps known. Steps count from 1."""

    kind: str
    peak: float
    warmup: int
    hold: int
    decay: int
    floor: float

    @classmethod
    def of(cls, config: ScheduleConfig, *, peak: float, warmup: int, max_steps: int) -> "Schedule":
        """Build a schedule from its configuration. Raises ValueError if it needs max_steps, or more of them.

        max_steps: 0 is unknown.
        """
        hold, decay = config.hold_steps, config.decay_steps
        left = max_steps - warmup
        if config.kind == INVERSE_SQUARE_ROOT and not warmup:
            raise ValueError(f"train.warmup_steps=0 must be at least 1 with {config.kind}, which falls from there")
        if config.kind == WARMUP_HOLD and not warmup + hold:
            raise ValueError(
                f"train.schedule.hold_steps=0 and train.warmup_steps=0: {config.kind} falls from their sum"
            )
        if config.floor >= peak:
            raise ValueError(f"train.schedule.floor={config.floor} must lie below train.learning_rate={peak}")
        field = "hold_steps" if config.kind == STABLE else "decay_steps"
        if field in USED[config.kind] and not getattr(config, field):
            needed = decay if config.kind == STABLE else 1
            if not max_steps:
                raise ValueError(f"train.max_steps=0: {config.kind} needs it, or train.schedule.{field}")
            if left < needed:
                raise ValueError(
                    f"train.max_steps={max_steps} must be at least {warmup + needed} with {config.kind}: "
                    f"train.warmup_steps={warmup}" + f" and train.schedule.decay_steps={decay}" * bool(decay)
                )
            hold, decay = (left - decay, decay) if config.kind == STABLE else (hold, left)
        return cls(config.kind, peak, warmup, hold, decay, config.floor)

    def __call__(self, step: int) -> float:
        """Return the learning rate of an optimizer step, counted from 1."""
        if step <= self.warmup:
            return self.peak * step / self.warmup
        after = self.warmup + self.hold
        if step <= after:
            return self.peak
        if self.kind in (INVERSE_SQUARE_ROOT, WARMUP_HOLD):
            return self.peak * math.sqrt(after / step)
        passed = min((step - after) / self.decay, 1.0)
        share = (1 + math.cos(math.pi * passed)) / 2 if self.kind == COSINE else 1 - passed
        return self.floor + (self.peak - self.floor) * share
