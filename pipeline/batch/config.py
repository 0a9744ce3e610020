"""Configuration of batches. Free of numpy and torch, so that it loads fast."""

from dataclasses import dataclass

from pipeline.batch.mixture_config import MixtureConfig


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
    """

    shapes: list[GroupShape]
    groups_per_step: int
    mixture: MixtureConfig
    window_steps: int = 32

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

    @property
    def max_source(self) -> int:
        """Longest source sentence, in tokens with tag and end."""
        return self.shapes[-1].source

    @property
    def max_target(self) -> int:
        """Longest target sentence, in tokens with end."""
        return self.shapes[-1].target
