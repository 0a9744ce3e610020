"""Counts of the expert choices that a capacity drops. Free of torch, for modules that only report them."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class Counted(Protocol):
    """A routing decision, or another count: choices of experts before capacity (asked) and after it (kept)."""

    @property
    def asked(self) -> "Tensor | int": ...

    @property
    def kept(self) -> "Tensor | int": ...


class DropCount:
    """Choices of experts before and after capacity, summed over all MoE layers and passes. 0 without a capacity."""

    def __init__(self) -> None:
        self._before: Tensor | int = 0
        self._after: Tensor | int = 0

    def add(self, choices: Counted) -> None:
        self._before, self._after = self._before + choices.asked, self._after + choices.kept

    @property
    def asked(self) -> int:
        return int(self._before)

    @property
    def kept(self) -> int:
        return int(self._after)

    def __str__(self) -> str:
        share = (self.asked - self.kept) / max(self.asked, 1)
        return f"{100 * share:.1f} % of {self.asked} choices of experts dropped"
