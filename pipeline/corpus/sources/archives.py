"""Extraction of files from archives that may be hostile: zip, and tar, plain or in gzip, bzip2, xz or zstd."""

import bz2
import gzip
import lzma
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, cast

import pyarrow as pa
from filelock import FileLock

from pipeline.spelling import nearest_names

_RATIO = 200  # most bytes of content for a byte of archive; text in xz has less than 30
_SMALL = 256 << 20  # bytes of content that are always allowed
_CHUNK = 1 << 20
_HEADERS = 16 << 10  # most bytes before a member of a tar; paths have at most 4096
_FAULTS = (
    EOFError,
    OSError,
    RuntimeError,  # raised for an encrypted zip
    NotImplementedError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    pa.ArrowException,
)


def extract(archive: Path, members: Sequence[str], out: Path) -> list[Path]:
    """Extract the files of these names from `archive` to `out`, and return their paths. Existing files are kept.

    Nothing else is written, and a file has its name only once it is complete.
    Raises ValueError, with archive and member, for a member with an absolute path or `..`, a requested member that is
    missing, a link or a device, content out of proportion to the archive, and a file that is damaged or no archive.
    """
    targets = {_plain(name): out / _plain(name) for name in members}
    out.mkdir(parents=True, exist_ok=True)
    with FileLock(out.with_name(out.name + ".lock")):
        if not all(target.is_file() for target in targets.values()):
            try:
                _extract(archive, targets)
            except _FAULTS as error:
                reason = f"{type(error).__name__}: {error}"
                raise ValueError(
                    f"{archive}: damaged, or no tar or zip that can be read here ({reason}); fetch it again"
                ) from error
    return [targets[_plain(name)] for name in members]


@dataclass(frozen=True, kw_only=True)
class _Member:
    name: str
    size: int  # bytes, as the archive says
    regular: bool  # whether it is a file, neither link nor device
    directory: bool
    open: Callable[[], IO[bytes]]


def _extract(archive: Path, targets: dict[str, Path]) -> None:
    size = 0
    names: list[str] = []
    for member in _members(archive):
        path = PurePosixPath(member.name.replace("\\", "/"))
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"{archive}: member {member.name!r} leaves the directory; do not trust this archive")
        size += member.size
        _check_size(archive, size, f"up to member {member.name!r}")
        name = _plain(member.name)
        if not member.directory:
            names.append(name)
        if name in targets:
            if not member.regular:
                raise ValueError(f"{archive}: member {member.name!r} is no file but a link or a device; name a file")
            _write(archive, member, _partial(targets[name]))
    for name in targets:
        if name not in names:
            near = nearest_names(name, names, cutoff=0.3) or names[:3]
            raise ValueError(
                f"{archive}: has no member {name!r}; did you mean {' or '.join(near) or 'another archive'}? "
                f"(it holds {len(names)} files)"
            )
    for target in targets.values():  # at the end, because a compressed tar has its checksum there
        _partial(target).replace(target)


def _limit(archive: Path) -> int:
    """Return the most bytes that an archive may unpack to."""
    return max(_SMALL, _RATIO * archive.stat().st_size)


def _check_size(archive: Path, size: int, where: str) -> None:
    """Raise ValueError if an archive unpacks to too many bytes. where: the part that was read, for the message."""
    if size > (limit := _limit(archive)):
        raise ValueError(
            f"{archive}: {archive.stat().st_size:,} bytes that unpack to more than {limit:,}, {where}; this is no "
            "text: do not trust this archive, or unpack it by hand"
        )


def _partial(target: Path) -> Path:
    return target.with_name(target.name + ".partial")


def _write(archive: Path, member: _Member, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if member.size > (free := shutil.disk_usage(target.parent).free):
        raise ValueError(f"{archive}: {member.name!r} has {member.size:,} bytes, {free:,} are free; free some space")
    written = 0
    with member.open() as source, target.open("wb") as file:
        while chunk := source.read(_CHUNK):
            written += len(chunk)
            if written > member.size:
                raise ValueError(
                    f"{archive}: member {member.name!r} is larger than the {member.size:,} bytes that it says; "
                    "do not trust this archive"
                )
            file.write(chunk)


def _plain(name: str) -> str:
    """Return a name without `./`, which some archivers write before every name."""
    return str(PurePosixPath(name))


def _members(archive: Path) -> Iterator[_Member]:
    """Yield the members in their order. Each can be read until the next one is taken."""
    if zipfile.is_zipfile(archive):
        yield from _zip_members(archive)
    else:
        yield from _tar_members(archive)


def _zip_members(archive: Path) -> Iterator[_Member]:
    with zipfile.ZipFile(archive) as file:
        for info in file.infolist():
            kind = info.external_attr >> 28  # type bits of the Unix mode; 0 if another system made the archive
            yield _Member(
                name=info.filename,
                size=info.file_size,
                regular=not info.is_dir() and kind in (0, 8),
                directory=info.is_dir(),
                open=lambda info=info: file.open(info),  # type: ignore[misc]
            )


class _Unpacked:
    """A stream of the bytes of a tar, which counts all of them: headers and unused members too.

    until: position up to which the stream may be read now.
    """

    def __init__(self, archive: Path, stream: IO[bytes]) -> None:
        self._archive, self._stream, self._position = archive, stream, 0
        self.until = _HEADERS

    def read(self, size: int) -> bytes:
        chunk = self._stream.read(size)
        self._position += len(chunk)
        _check_size(self._archive, self._position, "with headers and all members")
        if self._position > self.until + tarfile.RECORDSIZE:  # tarfile reads a whole record at once
            raise ValueError(
                f"{self._archive}: more than {_HEADERS:,} bytes of headers before a member, where a name and a few "
                "attributes stand; do not trust this archive, or unpack it by hand"
            )
        return chunk


def _tar_members(archive: Path) -> Iterator[_Member]:
    """Yield the members of a tar, which is read once from its start to its end."""
    with ExitStack() as stack:
        unpacked = _Unpacked(archive, stack.enter_context(_decompressed(archive)))
        file = stack.enter_context(tarfile.open(fileobj=cast(IO[bytes], unpacked), mode="r|"))
        while (info := file.next()) is not None:
            file.members.clear()  # type: ignore[attr-defined]  # to save memory, because tarfile keeps all of them
            unpacked.until = file.offset + _HEADERS  # the headers of the next member begin at file.offset
            yield _Member(
                name=info.name,
                size=info.size if info.isreg() else 0,
                regular=info.isreg(),
                directory=info.isdir(),
                open=lambda info=info: _content(file, info),  # type: ignore[misc]
            )
        unpacked.until = _limit(archive)
        while unpacked.read(_CHUNK):
            pass  # read padding and checksum, because the library compares the checksum when it is read


def _content(file: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    content = file.extractfile(info)
    assert content is not None  # a regular file has one
    return content


def _decompressed(archive: Path) -> IO[bytes]:
    """Open a file, decompressed if its first bytes are those of a compression."""
    with archive.open("rb") as file:
        magic = file.read(6)
    if magic.startswith(b"\x1f\x8b"):
        return cast(IO[bytes], gzip.open(archive, "rb"))
    if magic.startswith(b"BZh"):
        return bz2.open(archive, "rb")
    if magic == b"\xfd7zXZ\x00":
        return lzma.open(archive, "rb")
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        stream: IO[bytes] = pa.CompressedInputStream(pa.OSFile(str(archive), "rb"), "zstd")
        return stream
    return archive.open("rb")
