"""Configuration of batches. Free of numpy and torch, so that it loads fast."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pipeline.batch.mixture_config import MixtureConfig
from pipeline.corpus.modifiers import MODIFIERS
from pipeline.spelling import suggestion

MERGED, SUBWORDS = "merged", "subwords"
AUGMENTATIONS = (*MODIFIERS, MERGED, SUBWORDS)
SUBWORD_SETTINGS = ("subword_alpha", "subword_nbest")


@dataclass(frozen=True, kw_only=True)
class GroupShape:
    """The shape of one group.

    rows: packed rows of a group.
    source: source tokens of a row.
    target: target tokens of a row; 0 is fitted to the ratio of the data.
    """

    rows: int
    source: int
    target: int

    def __post_init__(self) -> None:
        if min(self.rows, self.source) < 1 or self.target < 0:
            raise ValueError(f"batch.shapes: rows and source must be at least 1, target at least 0, got {self}")


@dataclass(frozen=True, kw_only=True)
class BatchConfig:
    """Settings that turn sentence pairs into training steps.

    shapes: a few fixed group shapes, from short rows to long ones. A sentence pair needs the first shape that holds its
        two sides. The last shape bounds the length of a sentence.
    groups_per_step: groups of a step, G. They are part of the recipe and do not depend on the number of processes.
    mixture: the pairs and sources from which sentences are drawn.
    window_steps: number of steps that are packed together.
    augment: share of the training rows that each kind of change gets when they are drawn; empty changes none. Kinds are
        `upper`, `title`, `full_stop`, `typos`, `word`, `number`, `url`, `emoji`, `merged` and `subwords`
        (docs/augmentation.md).
    subword_alpha: exponent of the probabilities by which `subwords` draws; 0.1 is flat, 1 is as the model has them.
    subword_nbest: number of best segmentations of a word from which `subwords` draws.
    """

    shapes: list[GroupShape]
    groups_per_step: int
    mixture: MixtureConfig
    window_steps: int = 32
    augment: dict[str, float] = field(default_factory=dict)
    subword_alpha: float = 0.1
    subword_nbest: int = 64

    def __post_init__(self) -> None:
        if not self.shapes:
            raise ValueError("batch.shapes is empty; give at least one {rows, source, target}")
        if self.shapes[-1].target == 0:
            raise ValueError(
                "batch.shapes: the last shape bounds the length of a sentence and needs a target of its own"
            )
        order = [(shape.source, shape.target) for shape in self.shapes if shape.target]
        if any(small[0] > large[0] or small[1] > large[1] for small, large in zip(order, order[1:], strict=False)):
            raise ValueError(f"batch.shapes must grow on both sides from first to last, got {order} (source, target)")
        if self.groups_per_step < 1:
            raise ValueError(f"batch.groups_per_step={self.groups_per_step} must be at least 1")
        if self.window_steps < 1:
            raise ValueError(f"batch.window_steps={self.window_steps} must be at least 1")
        _check_augment(self.augment)
        # A share of 0 is no share, so that records with and without it are equal.
        object.__setattr__(self, "augment", {kind: share for kind, share in self.augment.items() if share})
        if not self.subword_alpha > 0:
            raise ValueError(f"batch.subword_alpha={self.subword_alpha} must be above 0, such as 0.1")
        if not 2 <= self.subword_nbest <= 512:
            raise ValueError(f"batch.subword_nbest={self.subword_nbest} must be from 2 to 512, such as 64")

    def to_key(self) -> dict[str, Any]:
        """Return the settings that decide about batches: those of augmentation only where rows are changed."""
        values = asdict(self)
        unused = [] if SUBWORDS in self.augment else [*SUBWORD_SETTINGS]
        unused += [] if self.augment else ["augment"]
        return {key: value for key, value in values.items() if key not in unused}

    @property
    def max_source(self) -> int:
        """Longest source sentence, in tokens with tag and end."""
        return self.shapes[-1].source

    @property
    def max_target(self) -> int:
        """Longest target sentence, in tokens with end."""
        return self.shapes[-1].target


def _check_augment(shares: Mapping[str, float]) -> None:
    for kind, share in shares.items():
        if kind not in AUGMENTATIONS:
            raise ValueError(f"batch.augment.{kind} does not exist{suggestion(kind, AUGMENTATIONS)}")
        if not 0 <= share <= 1:
            raise ValueError(f"batch.augment.{kind}={share} must be a share of the rows, from 0 to 1")
    if sum(shares.values()) > 1 + 1e-9:
        raise ValueError(
            f"batch.augment: shares sum to {sum(shares.values()):g}, and a row gets one kind; lower them to 1 in all"
        )
