"""The values that one training job needs. They travel in a JSON file."""

from dataclasses import dataclass, field
from pathlib import Path

from pipeline.batch.config import BatchConfig
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.model.config import ModelConfig
from pipeline.train.config import TrainConfig


@dataclass(frozen=True, kw_only=True)
class TrainJob:
    """One training job.

    title: for progress and wandb.
    slot: number of the job among those that run at the same time: the line of its progress bar, and its device.
    pairs: names of language pairs.
    encoded: directories of the pairs' encoded texts, in the same order.
    directions: codes of the pairs, as de:en, in the same order. Only validations that translate need them.
    vocabulary, out: directories.
    layout: for `layout_of`.
    """

    title: str
    slot: int
    pairs: list[str]
    encoded: list[str]
    vocabulary: str
    out: str
    model: ModelConfig
    batch: BatchConfig
    train: TrainConfig
    runtime: RuntimeConfig
    layout: dict[str, str | list[str] | None]
    directions: list[str] = field(default_factory=list)

    @property
    def log(self) -> Path:
        return Path(self.out) / "log"
