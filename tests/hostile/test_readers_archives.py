"""Archives whose headers, or unused members, cost more than the requested files."""

import gzip
import io
import tarfile
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest

from pipeline.corpus.sources.archives import extract

TEXT = b"Guten Tag\n"


def member(kind: bytes, content: bytes, name: str = "x") -> bytes:
    """Return a header and its content, in whole blocks."""
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(content)
    return info.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % tarfile.BLOCKSIZE)


FILE, END = member(tarfile.REGTYPE, TEXT, "a.de"), bytes(2 * tarfile.BLOCKSIZE)


def packed(path: Path, parts: Sequence[bytes]) -> Path:
    path.write_bytes(gzip.compress(b"".join(parts), compresslevel=6))
    return path


def refusal(archive: Path, out: Path) -> tuple[str, int]:
    """Return the reason why an archive is refused, empty if it is not, and the peak of Python's memory in bytes."""
    tracemalloc.start()
    try:
        extract(archive, ["a.de"], out)
        return "", tracemalloc.get_traced_memory()[1]
    except ValueError as error:
        return str(error), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "kind",
    [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK],
)
def test_a_long_header_is_refused_before_it_is_read(tmp_path: Path, kind: bytes) -> None:
    """An archive of 235 kB once took 4.7 GB of memory."""
    archive = packed(tmp_path / "a.tar.gz", [member(kind, bytes(32 << 20)), FILE, END])
    message, peak = refusal(archive, tmp_path / "out")
    assert message.startswith(f"{archive}: more than 16,384 bytes of headers before a member")
    assert peak < 4 << 20
    assert not (tmp_path / "out" / "a.de").exists()


def test_many_headers_of_one_member_are_refused(tmp_path: Path) -> None:
    archive = packed(tmp_path / "a.tar.gz", [*[member(tarfile.GNUTYPE_LONGLINK, b"x" * 8000)] * 5, FILE, END])
    assert "bytes of headers before a member" in refusal(archive, tmp_path / "out")[0]


@pytest.mark.parametrize("kind", [b"Z", tarfile.GNUTYPE_SPARSE, tarfile.REGTYPE])
def test_unused_members_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: bytes) -> None:
    """Members of an unknown kind were once skipped without counting them, 2 GB in one archive."""
    monkeypatch.setattr("pipeline.corpus.sources.archives._SMALL", 1 << 20)
    archive = packed(tmp_path / "a.tar.gz", [member(kind, bytes(16 << 20)), FILE, END])
    message, peak = refusal(archive, tmp_path / "out")
    assert "bytes that unpack to more than" in message
    assert peak < 4 << 20


def test_padding_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.corpus.sources.archives._SMALL", 1 << 20)
    archive = packed(tmp_path / "a.tar.gz", [FILE, END, bytes(16 << 20)])
    assert "with headers and all members" in refusal(archive, tmp_path / "out")[0]
    assert not (tmp_path / "out" / "a.de").exists()


def test_many_empty_members_are_not_kept_in_memory(tmp_path: Path) -> None:
    archive = packed(tmp_path / "a.tar.gz", [*[member(tarfile.REGTYPE, b"")] * 10_000, FILE, END])
    message, peak = refusal(archive, tmp_path / "out")
    assert message == ""
    assert peak < 4 << 20


@pytest.mark.parametrize("format_", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_names_as_long_as_a_path_may_be_are_read(tmp_path: Path, format_: int) -> None:
    name = "/".join(["ä" * 100] * 15) + "/a.de"
    with tarfile.open(tmp_path / "a.tar.xz", "w:xz", format=format_) as file:
        for path in (name, "other"):
            info = tarfile.TarInfo(path)
            info.size = len(TEXT)
            file.addfile(info, io.BytesIO(TEXT))
    assert extract(tmp_path / "a.tar.xz", [name], tmp_path / "out")[0].read_bytes() == TEXT


def test_small_members_of_an_unknown_kind_are_skipped(tmp_path: Path) -> None:
    archive = packed(tmp_path / "a.tar.gz", [member(b"Z", bytes(100_000)), FILE, member(b"V", b""), END])
    assert extract(archive, ["a.de"], tmp_path / "out")[0].read_bytes() == TEXT
