"""Bytes of a file, decompressed as they are read, with a bound on the expansion of a hostile file."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

CHUNK_BYTES = 1 << 20  # most bytes of a chunk
MAX_RATIO = 200  # expanded over compressed bytes; text reaches 10, seldom 50
FREE_BYTES = 256 << 20  # the ratio is checked beyond so many expanded bytes
_READ_BYTES = 256 << 10
_XZ_MEMORY = 256 << 20  # most bytes of memory of a decoder; xz -9 takes 65 MiB
_MAGIC = {
    "gzip": b"\x1f\x8b",
    "bzip2": b"BZh",
    "xz": b"\xfd7zXZ\x00",
    "zstd": b"\x28\xb5\x2f\xfd",
    "zip": b"PK\x03\x04",
    "Parquet": b"PAR1",
}
_SUFFIXES = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}


class StreamError(Exception):
    """A fault in the bytes of a file, with its remedy. The reader of the file adds the line."""


def is_compressed(name: str) -> bool:
    """Return whether the name of a file ends in the suffix of a compression."""
    return name.endswith(tuple(_SUFFIXES))


def read_chunks(path: Path, *, max_ratio: float = MAX_RATIO, free_bytes: int = FREE_BYTES) -> Iterator[bytes]:
    """Yield chunks of a file, never empty, decompressed if its suffix is .gz, .bz2, .xz or .zst.

    Raises StreamError if the file cannot be read, is not compressed as its name says or is damaged, or if it expands
    beyond `free_bytes` and `max_ratio` times its size.
    """
    codec = _SUFFIXES.get(path.suffix)
    expanded = 0
    try:
        with path.open("rb") as file:
            for chunk in _CODECS[codec](file):
                expanded += len(chunk)
                if expanded > free_bytes and expanded > max_ratio * file.tell():
                    raise StreamError(
                        f"expands beyond {max_ratio} times its compressed size ({expanded} bytes of {file.tell()}), "
                        "as a decompression bomb does; if it is sound, decompress it yourself"
                    )
                yield chunk
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise StreamError(_damage(path, codec, error)) from error


def kind_of(head: bytes) -> str | None:
    """Return the kind of a file that is no text, if its first bytes show it."""
    return next((kind for kind, magic in _MAGIC.items() if head.startswith(magic)), None)


def _damage(path: Path, codec: str | None, error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return f"cannot be read ({error.strerror}); check the file, its permissions and its disk"
    assert codec is not None
    with path.open("rb") as file:
        head = file.read(8)
    if not head.startswith(_MAGIC[codec]):
        return f"the name ends in {path.suffix}, but this is no {codec} file; rename it, or compress it with {codec}"
    return f"truncated or corrupt {codec} stream ({error}); fetch the file again"


def _plain(file: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: file.read(CHUNK_BYTES), b"")


def _gunzip(file: BinaryIO) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=file, mode="rb") as expanded:
        yield from iter(lambda: expanded.read(CHUNK_BYTES), b"")


def _bunzip2(file: BinaryIO) -> Iterator[bytes]:
    with bz2.BZ2File(file, "rb") as expanded:
        yield from iter(lambda: expanded.read(CHUNK_BYTES), b"")


def _unxz(file: BinaryIO) -> Iterator[bytes]:
    """Decompress every stream of a file. LZMAFile would have no limit of memory."""
    data = file.read(_READ_BYTES)
    while data:
        decoder = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
        while not decoder.eof:
            chunk = decoder.decompress(data, CHUNK_BYTES)
            if chunk:
                yield chunk
            data = b""
            if decoder.needs_input and not decoder.eof:
                data = file.read(_READ_BYTES)
                if not data:
                    raise EOFError("it ends before its last block")
        data = decoder.unused_data.lstrip(b"\0")  # streams may be padded with zeros
        while not data:
            more = file.read(_READ_BYTES)
            if not more:
                return
            data = more.lstrip(b"\0")


def _unzstd(file: BinaryIO) -> Iterator[bytes]:
    with pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd") as expanded:
        yield from iter(lambda: expanded.read(CHUNK_BYTES), b"")


_CODECS: dict[str | None, Callable[[BinaryIO], Iterator[bytes]]] = {
    None: _plain,
    "gzip": _gunzip,
    "bzip2": _bunzip2,
    "xz": _unxz,
    "zstd": _unzstd,
}
