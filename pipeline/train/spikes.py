"""Skip steps that must not change the weights, and decide when to stop. This module does not import torch."""

import math
import statistics
from collections import deque
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class SpikeConfig:
    """Steps that are skipped so that they do not spoil or end a run.

    threshold: a step is skipped if its gradient norm is not finite, or is larger than this many times the median of the
        last `window` steps that were not skipped. 0 skips no step; a loss or norm that is not finite then ends the run.
    window: number of steps for the median.
    patience: number of skipped steps in a row that ends the run.
    """

    threshold: float = 0.0
    window: int = 100
    patience: int = 10

    def __post_init__(self) -> None:
        if self.threshold and self.threshold <= 1:
            raise ValueError(f"train.spikes.threshold={self.threshold} must be above 1 (10 is usual), or 0 for off")
        for name in ("window", "patience"):
            if getattr(self, name) < 1:
                raise ValueError(f"train.spikes.{name}={getattr(self, name)} must be at least 1")


class StepGuard:
    """Judges each step by numbers that are equal on all processes. Its state is part of checkpoints."""

    def __init__(self, config: SpikeConfig, *, fp16: bool) -> None:
        self.config, self._fp16 = config, fp16
        self._norms: deque[float] = deque(maxlen=config.window)
        self._skipped = 0

    @property
    def on(self) -> bool:
        return self.config.threshold > 0

    def accepts(self, norm: float) -> bool:
        """Return true if a finite gradient norm is not a spike. There are no spikes before the window is full."""
        return not self.on or len(self._norms) < self.config.window or norm <= self.config.threshold * self._median()

    def settle(
        self, step: int, *, cross_entropy: float, norm: float, updated: bool, loss_scale: float
    ) -> dict[str, Any] | None:
        """Judge a finished step. Return None if it updated the weights, else a record of the skipped step.

        norm: the gradient norm; infinite if a gradient was not finite.
        loss_scale: the scale with which the step was computed.

        Raises ValueError if the run has to end.
        """
        finite = math.isfinite(cross_entropy) and math.isfinite(norm)
        if updated and finite:
            self._skipped = 0
            self._norms.append(norm)
            return None
        overflow = self._fp16 and math.isfinite(cross_entropy) and not math.isfinite(norm) and loss_scale > 1
        if updated or not (self.on or overflow):
            raise ValueError(
                f"training diverged at step {step}: cross-entropy {cross_entropy}, gradient norm {norm}; "
                "what was saved before is kept: lower train.learning_rate or raise train.warmup_steps"
            )
        median = self._median() if self._norms else None
        if not overflow:
            self._skipped += 1
            if self._skipped >= self.config.patience:
                raise ValueError(
                    f"training stopped at step {step}: {self._skipped} steps in a row were spikes (norm {norm}; "
                    f"median of good ones before: {median}); what was saved before is kept: lower "
                    "train.learning_rate, or raise train.spikes.threshold or train.spikes.patience"
                )
        return {
            "event": "skipped",
            "step": step,
            "reason": "overflow" if overflow else "spike",
            "cross_entropy": cross_entropy if math.isfinite(cross_entropy) else None,
            "gradient_norm": norm if math.isfinite(norm) else None,
            "median_norm": median,
            "loss_scale": loss_scale,
        }

    def to_json(self) -> dict[str, Any]:
        return {"norms": list(self._norms), "skipped": self._skipped}

    def restore(self, values: dict[str, Any]) -> None:
        self._norms.extend(values["norms"])
        self._skipped = values["skipped"]

    def _median(self) -> float:
        return statistics.median(self._norms)
