import gzip
import lzma
import os
import re
import sys
import zlib
from pathlib import Path

import pytest

from pipeline.corpus.readers.streams import CHUNK_BYTES, StreamError, read_chunks
from tests.unit.corpus.readers.written import COMPRESSIONS, parquet, rows_of, tsv, xz, zstd

LONG = b"".join(b"%d\tx\n" % number for number in range(130_000))


def expanded(path: Path) -> bytes:
    return b"".join(read_chunks(path))


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_chunks_are_bounded_and_whole(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.tsv{suffix}"
    path.write_bytes(COMPRESSIONS[suffix](LONG))
    sizes = [len(chunk) for chunk in read_chunks(path)]
    assert 0 < min(sizes) <= max(sizes) <= CHUNK_BYTES < len(LONG)
    assert expanded(path) == LONG
    path.write_bytes(b"")
    assert list(read_chunks(path)) == []


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_several_streams_in_one_file_are_read_as_one(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.tsv{suffix}"
    compress = COMPRESSIONS[suffix]
    path.write_bytes(compress(LONG) + compress(b"more\n") + compress(LONG))
    assert expanded(path) == LONG + b"more\n" + LONG


def test_frames_that_zstd_skips_are_skipped(tmp_path: Path) -> None:
    """Tools that compress in parallel write such frames."""
    path = tmp_path / "a.zst"
    skipped = b"\x50\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"xyz"
    path.write_bytes(skipped + zstd(b"a") + skipped + zstd(b"b"))
    assert expanded(path) == b"ab"


def test_padding_between_xz_streams_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "a.xz"
    path.write_bytes(lzma.compress(b"a") + bytes(300_000) + lzma.compress(b"b") + bytes(4))
    assert expanded(path) == b"ab"


@pytest.mark.parametrize(("suffix", "kind"), [(".gz", "gzip"), (".xz", "xz"), (".zst", "zstd")])
def test_damage_is_named_with_file_and_line(tmp_path: Path, suffix: str, kind: str) -> None:
    path = tmp_path / f"a.tsv{suffix}"
    data = COMPRESSIONS[suffix](LONG)
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(
        ValueError, match=rf"a\.tsv{suffix}: from line \d+ on: truncated or corrupt {kind} stream \(.*fetch"
    ):
        rows_of(path, "tsv")
    path.write_bytes(data + b"\xffgarbage that is no stream")
    with pytest.raises(ValueError, match=rf"a\.tsv{suffix}: from line \d+ on: truncated or corrupt {kind} stream"):
        rows_of(path, "tsv")
    path.write_bytes(b"Hallo\tHello\n")
    with pytest.raises(
        ValueError, match=rf"from line 1 on: the name ends in {suffix}, but this is no {kind} file; rename"
    ):
        rows_of(path, "tsv")
    path.with_suffix("").write_bytes(data)
    with pytest.raises(ValueError, match=rf"a\.tsv: line 1: not text, but {kind}; correct its name or its format"):
        rows_of(path.with_suffix(""), "tsv")


def test_corrupt_bytes_inside_are_found_by_their_checksum(tmp_path: Path) -> None:
    for suffix, compress in ((".gz", gzip.compress), (".xz", xz)):
        data = bytearray(compress(LONG))
        data[len(data) // 2] ^= 0xFF
        path = tmp_path / f"a{suffix}"
        path.write_bytes(data)
        with pytest.raises(StreamError, match="truncated or corrupt"):
            expanded(path)


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_bombs_are_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.tsv{suffix}"
    path.write_bytes(COMPRESSIONS[suffix](bytes(8 << 20)))
    assert path.stat().st_size < 10_000
    with pytest.raises(StreamError, match=r"expands beyond 200 times its compressed size \(\d+ bytes of \d+\)"):
        for _ in read_chunks(path, free_bytes=2 << 20):
            pass
    assert sum(map(len, read_chunks(path, free_bytes=8 << 20))) == 8 << 20, "small files may be as dense as they like"
    path.write_bytes(COMPRESSIONS[suffix](os.urandom(1 << 16) * 32))
    assert sum(map(len, read_chunks(path, free_bytes=1 << 16))) == 1 << 21, "dense, but not beyond the ratio"


def test_a_bomb_by_default_limits(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv.zst"
    path.write_bytes(zstd(bytes(16 << 20)) * 20)
    with pytest.raises(StreamError, match=r"expands beyond 200 times"):
        for _ in read_chunks(path):
            pass


def test_an_xz_file_that_asks_for_too_much_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv.xz"
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 4096}]
    data = bytearray(lzma.compress(b"a\tb\n", format=lzma.FORMAT_XZ, filters=filters))
    header_end = 12 + (data[12] + 1) * 4
    at = data.index(b"\x21\x01", 12)
    data[at + 2] = 39  # a dictionary of 3 GiB
    data[header_end - 4 : header_end] = zlib.crc32(data[12 : header_end - 4]).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"a\.tsv\.xz: from line 1 on: .*[Mm]emory"):
        rows_of(path, "tsv")


def test_paths_that_are_no_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{re.escape(str(tmp_path))} is a directory; name the file in it"):
        rows_of(tmp_path, "tsv")
    with pytest.raises(ValueError, match=r"nowhere\.tsv does not exist; put the file there"):
        rows_of(tmp_path / "nowhere.tsv", "tsv")
    with pytest.raises(ValueError, match=r"a{300}\.tsv cannot be read \(.*\); check its name and its permissions"):
        rows_of(tmp_path / f"{'a' * 300}.tsv", "tsv")
    os.mkfifo(tmp_path / "pipe.tsv")
    with pytest.raises(ValueError, match=r"pipe\.tsv is no file but a device or a pipe; write its content to a file"):
        rows_of(tmp_path / "pipe.tsv", "tsv")
    (tmp_path / "a.parquet.gz").write_bytes(gzip.compress(parquet([("a", "b")])))
    with pytest.raises(ValueError, match=r"a\.parquet\.gz: Parquet is compressed inside; expand the file"):
        rows_of(tmp_path / "a.parquet.gz", "parquet")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has this file")
def test_a_file_that_fails_to_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"/proc/self/mem: from line 1 on: cannot be read \(.*\); check the file"):
        rows_of(Path("/proc/self/mem"), "tsv")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(tsv([("a", "b")]))
    path.chmod(0)
    with pytest.raises(
        ValueError, match=r"a\.tsv: from line 1 on: cannot be read \(Permission denied\); check the file"
    ):
        rows_of(path, "tsv")
