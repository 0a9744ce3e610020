"""What one training job needs, as plain values that travel in a JSON file."""

from dataclasses import dataclass
from pathlib import Path

from pipeline.batch.config import BatchConfig
from pipeline.model.config import ModelConfig
from pipeline.parallel.config import RuntimeConfig
from pipeline.train.config import TrainConfig


@dataclass(frozen=True, kw_only=True)
class TrainJob:
    """pairs: names of language pairs, and encoded: their directories in the same order. vocabulary, out: directories.

    title: for progress and wandb. slot: line of the terminal that its progress bar takes. layout: for `layout_of`.
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

    @property
    def log(self) -> Path:
        return Path(self.out) / "log"
