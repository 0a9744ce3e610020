"""Encoded rows of a pair: memory-mapped arrays of token ids, and of the position where each row begins."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from pipeline.corpus.manifest import SPLITS
from pipeline.vocab.ragged import Ragged

_SIDES = ("src", "tgt")
_BLOCK = 1 << 20  # values

Tokens = NDArray[np.uint16] | NDArray[np.uint32]


@dataclass(frozen=True, kw_only=True)
class EncodedSplit:
    """The rows of one split of one pair, memory-mapped. Offsets have one entry more than there are rows."""

    source_tokens: Tokens
    source_offsets: NDArray[np.int64]
    target_tokens: Tokens
    target_offsets: NDArray[np.int64]

    @classmethod
    def open(cls, directory: Path, split: str) -> "EncodedSplit":
        """Open a split that `encode` wrote to `directory`."""
        if split not in SPLITS:
            raise ValueError(f"split {split!r} is none of {', '.join(SPLITS)}; choose one of them")
        arrays = [
            np.load(directory / f"{split}.{side}.{array}.npy", mmap_mode="r").view(
                np.ndarray
            )  # an ndarray is faster to slice
            for side in _SIDES
            for array in ("tokens", "offsets")
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
        """Return the tag, pieces and EOS of a source, as a view."""
        return self.source_tokens[self.source_offsets[row] : self.source_offsets[row + 1]]

    def target(self, row: int) -> Tokens:
        """Return the pieces and EOS of a target, as a view."""
        return self.target_tokens[self.target_offsets[row] : self.target_offsets[row + 1]]

    @property
    def source_lengths(self) -> NDArray[np.int32]:
        """The number of tokens of every source, with tag and EOS."""
        return _lengths(self.source_offsets)

    @property
    def target_lengths(self) -> NDArray[np.int32]:
        """The number of tokens of every target, with EOS."""
        return _lengths(self.target_offsets)


def _lengths(offsets: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the lengths of rows, without a copy of the offsets."""
    lengths = np.empty(len(offsets) - 1, dtype=np.int32)
    return np.subtract(offsets[1:], offsets[:-1], out=lengths, casting="unsafe")


class SplitWriter:
    """A writer of rows to the four arrays of a split in `directory`."""

    def __init__(self, directory: Path, split: str, dtype: np.dtype[Any]) -> None:
        self._sides = [_RaggedWriter(directory, f"{split}.{side}", dtype) for side in _SIDES]

    def write(self, source: Ragged, target: Ragged) -> None:
        for side, rows in zip(self._sides, (source, target), strict=True):
            side.write(rows)

    def append(self, directory: Path, split: str) -> None:
        """Copy all rows of another split of the same dtype, in blocks."""
        for side, name in zip(self._sides, _SIDES, strict=True):
            side.append(directory, f"{split}.{name}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for side in self._sides:
            side.close()


class _RaggedWriter:
    """A writer of the tokens of rows to `<name>.tokens.npy`, and of their bounds to `<name>.offsets.npy`."""

    def __init__(self, directory: Path, name: str, dtype: np.dtype[Any]) -> None:
        self._end = 0
        self._tokens = _GrowingArray(directory / f"{name}.tokens.npy", dtype)
        self._offsets = _GrowingArray(directory / f"{name}.offsets.npy", np.dtype(np.int64))
        self._offsets.append(np.zeros(1, dtype=np.int64))

    def write(self, rows: Ragged) -> None:
        self._tokens.append(rows.tokens)
        self._offsets.append(self._end + np.cumsum(rows.lengths))
        self._end += len(rows.tokens)

    def append(self, directory: Path, name: str) -> None:
        first = self._end
        for tokens in _blocks(directory / f"{name}.tokens.npy"):
            self._tokens.append(tokens)
            self._end += len(tokens)
        skip = 1  # the first offset equals the end of the last row, which is written
        for offsets in _blocks(directory / f"{name}.offsets.npy"):
            self._offsets.append(first + offsets[skip:])
            skip = 0

    def close(self) -> None:
        self._tokens.close()
        self._offsets.close()


def _blocks(path: Path) -> Iterator[NDArray[Any]]:
    """Yield an array of one dimension in pieces. It is read, not mapped, because mapped pages count as memory."""
    with path.open("rb") as file:
        assert npy.read_magic(file) == (1, 0), path
        shape, _, dtype = npy.read_array_header_1_0(file)
        left = shape[0]
        while left:
            block = np.fromfile(file, dtype=dtype, count=min(left, _BLOCK))
            assert len(block), f"{path} is cut short"
            yield block
            left -= len(block)


class _GrowingArray:
    """A one-dimensional .npy file whose length is written when it is closed (NumPy leaves room in the header)."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self._length = 0
        self._dtype = dtype
        self._file = path.open("wb")
        self._write_header()
        self._start = self._file.tell()

    def append(self, values: NDArray[Any]) -> None:
        self._file.write(np.ascontiguousarray(values, dtype=self._dtype).data)
        self._length += len(values)

    def close(self) -> None:
        self._file.seek(0)
        self._write_header()
        assert self._file.tell() == self._start, "the header of a longer array must take the same room"
        self._file.close()

    def _write_header(self) -> None:
        header = {"descr": npy.dtype_to_descr(self._dtype), "fortran_order": False, "shape": (self._length,)}
        npy.write_array_header_1_0(self._file, header)
