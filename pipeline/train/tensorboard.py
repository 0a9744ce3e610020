"""Write the numbers of a run to TensorBoard's event files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter


class TensorBoard:
    """Event files of one run. Events of an earlier attempt after `resumed_step` are hidden."""

    def __init__(self, directory: Path, *, resumed_step: int) -> None:
        self._writer = SummaryWriter(str(directory), purge_step=resumed_step + 1 if resumed_step else None)

    def write(self, record: dict[str, Any]) -> None:
        """Write every number of a record under a name such as `train/layers/encoder.2/entropy`.

        Raises the OSError of an earlier write.
        """
        for name, value in numbers(record["event"], record):
            self._writer.add_scalar(name, value, record["step"])

    def close(self) -> None:
        self._writer.close()


def numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
    """Yield the numbers in nested mappings, with their paths."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in ("event", "step"):
                yield from numbers(f"{name}/{key}", inner)
    elif isinstance(value, int | float):
        yield name, value
