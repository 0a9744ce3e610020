"""The numbers of a run as TensorBoard's event files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter


class TensorBoard:
    """resumed_step: events after it, of an attempt that was interrupted, are hidden."""

    def __init__(self, directory: Path, *, resumed_step: int) -> None:
        self._writer = SummaryWriter(str(directory), purge_step=resumed_step + 1 if resumed_step else None)

    def write(self, record: dict[str, Any]) -> None:
        """Every number of a record, as `train/layers/encoder.2/entropy`. Raises OSError of an earlier write."""
        for name, value in numbers(record["event"], record):
            self._writer.add_scalar(name, value, record["step"])

    def close(self) -> None:
        self._writer.close()


def numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
    """Those in nested mappings, by path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in ("event", "step"):
                yield from numbers(f"{name}/{key}", inner)
    elif isinstance(value, int | float):
        yield name, value
