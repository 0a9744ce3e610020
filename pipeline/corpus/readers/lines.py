"""Lines of a text file, checked and cut in blocks. Single lines are examined only to name a fault."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.corpus.readers.streams import StreamError, kind_of, read_chunks

MAX_LINE_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, kw_only=True)
class Block:
    """Whole lines of a file, in valid UTF-8 without NUL.

    first: number of the first line, from 1.
    data: the lines, each with LF at its end.
    ends: position of every LF.
    """

    first: int
    data: bytes
    ends: np.ndarray[Any, np.dtype[np.int64]]

    @property
    def starts(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.concatenate((np.zeros(1, np.int64), self.ends[:-1] + 1))

    def texts(self) -> pa.StringArray:
        """Return the lines, without line ends."""
        return cut(self.data, self.starts, self.ends)

    def without_first(self) -> "Block | None":
        """Return the block without its first line, None if nothing is left."""
        start = int(self.ends[0]) + 1
        if start == len(self.data):
            return None
        return Block(first=self.first + 1, data=self.data[start:], ends=self.ends[1:] - start)


def read_blocks(path: Path) -> Iterator[Block]:
    """Yield the lines of a UTF-8 file in blocks of about a megabyte.

    LF or CRLF ends a line. A byte order mark at the start is dropped.
    Raises ValueError, with file and line, for text that is not UTF-8, a NUL byte, lines that end in CR alone, a line
    of more than MAX_LINE_BYTES, and a file that cannot be read or decompressed.
    """
    number, offset, tail = 1, 0, b""
    chunks = read_chunks(path)
    while True:
        try:
            chunk = next(chunks, b"")
        except StreamError as error:
            raise ValueError(f"{path}: from line {number} on: {error}") from error
        tail += chunk
        stop = tail.rfind(b"\n") + 1 if chunk else len(tail)
        raw, tail = tail[:stop], tail[stop:]
        if raw:
            block = _checked(path, raw, number, offset)
            number, offset = number + len(block.ends), offset + len(raw)
            yield block
        if len(tail) > MAX_LINE_BYTES:
            raise ValueError(_too_long(path, number))
        if not chunk:
            return


def cut(data: bytes, starts: Any, ends: Any) -> pa.StringArray:
    """Return the texts of spans of valid UTF-8. Spans must ascend, not overlap and not cut a character."""
    if not len(starts):
        return pa.array([], pa.string())
    offsets = np.empty(2 * len(starts), np.int32)
    offsets[0::2], offsets[1::2] = starts, ends
    spans_and_gaps = pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))
    return spans_and_gaps.take(pa.array(np.arange(0, len(offsets), 2, dtype=np.int32)))


def _checked(path: Path, raw: bytes, number: int, offset: int) -> Block:
    """Check whole lines and return them as a block. The last line of the file may have no line end."""
    data = raw.removeprefix(_BOM) if offset == 0 else raw
    _check_text(path, data, number, offset + len(raw) - len(data))
    if not data.endswith(b"\n"):
        data += b"\n"
    if b"\r\n" in data:
        data = data.replace(b"\r\n", b"\n")
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
    written = number - 1 + len(ends) - (not raw.endswith(b"\n"))  # number of line ends in the file so far
    if b"\r" in data and data.count(b"\r") > written:  # a few CR within lines count as spaces
        raise ValueError(f"{path}: line {number}: lines end in CR alone, as on old Macs; convert the line ends to LF")
    block = Block(first=number, data=data, ends=ends)
    lengths = ends - block.starts
    if lengths.max() > MAX_LINE_BYTES:
        raise ValueError(_too_long(path, number + int(lengths.argmax())))
    return block


def _check_text(path: Path, data: bytes, number: int, offset: int) -> None:
    """Raise ValueError unless bytes are UTF-8 without NUL. number, offset: the line and the byte where they begin."""
    try:
        data.decode("utf-8")
        position, fault = data.find(b"\0"), "NUL, as in binary files and UTF-16"
        if position < 0:
            return
    except UnicodeDecodeError as error:
        position, fault = error.start, f"not UTF-8 ({error.reason})"
    if number == 1:
        if data.startswith(_UTF16_BOMS):
            raise ValueError(f"{path}: line 1: UTF-16, by its byte order mark; convert the file to UTF-8")
        kind = kind_of(data)
        if kind:
            raise ValueError(f"{path}: line 1: not text, but {kind}; correct its name or its format")
    line = number + data.count(b"\n", 0, position)
    byte = f"byte {offset + position} (0x{data[position]:02x})"
    raise ValueError(f"{path}: line {line}: {byte} is {fault}; convert the file to UTF-8")


def _too_long(path: Path, number: int) -> str:
    return f"{path}: line {number}: longer than {MAX_LINE_BYTES} bytes; is the file text, one sentence a line? cut it"
