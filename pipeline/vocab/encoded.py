"""Encoded rows of a pair: memory-mapped arrays of token ids and of where each row begins."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from pipeline.corpus.manifest import SPLITS

_SIDES = ("src", "tgt")

Tokens = NDArray[np.uint16] | NDArray[np.uint32]


@dataclass(frozen=True, kw_only=True)
class EncodedSplit:
    """Rows of one split of one pair; every array is memory-mapped."""

    source_tokens: Tokens
    source_offsets: NDArray[np.int64]  # rows + 1
    target_tokens: Tokens
    target_offsets: NDArray[np.int64]  # rows + 1

    @classmethod
    def open(cls, directory: Path, split: str) -> "EncodedSplit":
        """Split that `encode` left in `directory`."""
        if split not in SPLITS:
            raise ValueError(f"split {split!r} is none of {', '.join(SPLITS)}; choose one of them")
        arrays = [
            np.load(directory / f"{split}.{side}.{what}.npy", mmap_mode="r").view(np.ndarray)  # quicker to slice
            for side in _SIDES
            for what in ("tokens", "offsets")
        ]
        return cls(
            source_tokens=arrays[0],
            source_offsets=arrays[1],
            target_tokens=arrays[2],
            target_offsets=arrays[3],
        )

    def __len__(self) -> int:
        return len(self.source_offsets) - 1

    def source(self, row: int) -> Tokens:
        """Tag, pieces and EOS of a source; a view."""
        return self.source_tokens[self.source_offsets[row] : self.source_offsets[row + 1]]

    def target(self, row: int) -> Tokens:
        """Pieces and EOS of a target; a view."""
        return self.target_tokens[self.target_offsets[row] : self.target_offsets[row + 1]]

    @property
    def source_lengths(self) -> NDArray[np.int32]:
        """Tokens of every source, tag and EOS included."""
        return _lengths(self.source_offsets)

    @property
    def target_lengths(self) -> NDArray[np.int32]:
        """Tokens of every target, EOS included."""
        return _lengths(self.target_offsets)


def _lengths(offsets: NDArray[np.int64]) -> NDArray[np.int32]:
    """Of rows, without a copy of the offsets."""
    lengths = np.empty(len(offsets) - 1, dtype=np.int32)
    return np.subtract(offsets[1:], offsets[:-1], out=lengths, casting="unsafe")


class RaggedWriter:
    """Appends rows of ids to `<prefix>.tokens.npy` and where they end to `<prefix>.offsets.npy`."""

    def __init__(self, prefix: Path, dtype: np.dtype[Any]) -> None:
        self.num_tokens = 0
        self._dtype = dtype
        self._tokens = _GrowingArray(prefix.with_name(f"{prefix.name}.tokens.npy"), dtype)
        self._offsets = _GrowingArray(prefix.with_name(f"{prefix.name}.offsets.npy"), np.dtype(np.int64))
        self._offsets.append(np.zeros(1, dtype=np.int64))

    def write(self, rows: Sequence[Sequence[int]]) -> None:
        lengths = np.fromiter((len(row) for row in rows), dtype=np.int64, count=len(rows))
        self._tokens.append(np.fromiter(chain.from_iterable(rows), dtype=self._dtype, count=lengths.sum()))
        self._offsets.append(self.num_tokens + np.cumsum(lengths))
        self.num_tokens += int(lengths.sum())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tokens.close()
        self._offsets.close()


class _GrowingArray:
    """One-dimensional .npy file whose length is known when it is closed (NumPy leaves room in the header)."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self._length = 0
        self._dtype = dtype
        self._file = path.open("wb")
        self._write_header()
        self._start = self._file.tell()

    def append(self, values: NDArray[Any]) -> None:
        self._file.write(values.tobytes())
        self._length += len(values)

    def close(self) -> None:
        self._file.seek(0)
        self._write_header()
        assert self._file.tell() == self._start, "the header of a longer array must take the same room"
        self._file.close()

    def _write_header(self) -> None:
        header = {"descr": npy.dtype_to_descr(self._dtype), "fortran_order": False, "shape": (self._length,)}
        npy.write_array_header_1_0(self._file, header)
