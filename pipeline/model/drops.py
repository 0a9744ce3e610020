"""What a capacity of experts drops, counted. Free of torch, for those who only report it."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class Counted(Protocol):
    """Choices of experts before and after capacity: of a decision, or of another count."""

    @property
    def asked(self) -> "Tensor | int": ...

    @property
    def kept(self) -> "Tensor | int": ...


class DropCount:
    """Choices of experts before and after capacity, summed over all MoE layers and passes; 0 where none was asked
    for."""

    def __init__(self) -> None:
        self._asked: Tensor | int = 0
        self._kept: Tensor | int = 0

    def add(self, counted: Counted) -> None:
        self._asked, self._kept = self._asked + counted.asked, self._kept + counted.kept

    @property
    def asked(self) -> int:
        return int(self._asked)

    @property
    def kept(self) -> int:
        return int(self._kept)

    def __str__(self) -> str:
        share = (self.asked - self.kept) / max(self.asked, 1)
        return f"{100 * share:.1f} % of {self.asked} choices of experts dropped"
