"""The settings of low-rank adapters, and the names and sizes of their matrices. Free of torch.

M model, N heads, D head dim, H hidden, R rank.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pipeline.model.components import MARK, is_adapter, kind_of

TARGETS = ("attention", "feed_forward")


@dataclass(frozen=True, kw_only=True)
class LoraConfig:
    """Low-rank adapters (LoRA, arXiv:2106.09685): x · W becomes x · W + alpha / rank · dropout(x) · A · B.

    rank: columns of A, which are the rows of B.
    alpha: the numerator of the factor on what adapters add.
    dropout: probability of dropping an input of an adapter in training.
    targets: the projections that get adapters, attention and feed_forward. Experts get none.
    """

    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.0
    targets: list[str] = field(default_factory=lambda: list(TARGETS))

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"train.lora.rank={self.rank} must be at least 1; 8 is usual")
        if self.alpha <= 0:
            raise ValueError(f"train.lora.alpha={self.alpha} must be positive; twice the rank is usual")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"train.lora.dropout={self.dropout} must lie in [0, 1)")
        if "experts" in self.targets:
            raise ValueError("train.lora.targets: experts cannot have adapters; use attention, feed_forward or both")
        if not self.targets or not {*self.targets} <= {*TARGETS}:
            raise ValueError(f"train.lora.targets={self.targets}: give {TARGETS[0]}, {TARGETS[1]} or both")

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


def is_target(name: str, targets: Sequence[str]) -> bool:
    """Return true for a weight that gets an adapter."""
    return kind_of(name) in targets and name.rpartition(".")[2].startswith("w") and not is_adapter(name)


def num_inputs(letters: str) -> int:
    """Return how many of a projection's dimensions are inputs: M alone, or all that are before M."""
    return 1 if letters.startswith("M") else len(letters) - 1


def matrices(leaf: str, sizes: Sequence[int], rank: int) -> dict[str, tuple[int, ...]]:
    """Return the names and sizes of A and B for a weight. leaf: the last part of its name, such as wq_MND."""
    letters = leaf.rpartition("_")[2]
    split = num_inputs(letters)
    return {f"a_{letters[:split]}R": (*sizes[:split], rank), f"b_R{letters[split:]}": (rank, *sizes[split:])}


def weight_of(name: str) -> str:
    """Return the name of the weight that a parameter of an adapter belongs to."""
    return name.rpartition(".")[0].replace(MARK, ".")
