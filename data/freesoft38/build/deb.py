"""Reads text files out of Debian packages, in memory: nothing is unpacked to the disk and nothing is run."""

import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

AR_MAGIC = b"!<arch>\n"
# No text file of these packages is near this size; a larger one would be a decompression bomb.
MAX_MEMBER = 64 << 20


def data_archive(path: Path) -> tuple[str, bytes]:
    """Return the name and the bytes of a package's data.tar, the last member of its ar archive."""
    content = path.read_bytes()
    if not content.startswith(AR_MAGIC):
        raise ValueError(f"{path} is not a Debian package; delete it and build again")
    start = len(AR_MAGIC)
    while start + 60 <= len(content):
        header = content[start : start + 60]
        name, size = header[:16].decode("ascii").strip().rstrip("/"), int(header[48:58])
        if name.startswith("data.tar"):
            return name, content[start + 60 : start + 60 + size]
        start += 60 + size + size % 2
    raise ValueError(f"{path} has no data.tar; delete it and build again")


def read_files(path: Path, accept: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Yield name and bytes of the regular files of a package for which `accept` is true, in the order of the package.

    Links and devices are skipped. A name that leads out of the package is an error.
    """
    name, data = data_archive(path)
    if name not in ("data.tar", "data.tar.gz", "data.tar.xz", "data.tar.bz2"):
        raise ValueError(f"{path}: {name} cannot be read; the packages of bookworm have data.tar.xz")
    with tarfile.open(fileobj=io.BytesIO(data), mode="r|*") as archive:
        for member in archive:
            inner = member.name.removeprefix("./")
            if inner.startswith("/") or ".." in inner.split("/"):
                raise ValueError(f"{path}: the member {member.name} leads out of the package")
            if not (member.isreg() and accept(inner)):
                continue
            if member.size > MAX_MEMBER:
                raise ValueError(f"{path}: the member {member.name} is larger than {MAX_MEMBER} bytes")
            stream = archive.extractfile(member)
            assert stream is not None  # a regular file has one
            yield inner, stream.read()
