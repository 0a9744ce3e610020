"""Servers that send more than they announce, or announce no size."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pipeline.corpus.sources.download import Patience, download
from tests.unit.corpus.sources.serving import QuietHandler, serving

MIB = 1 << 20
SENT = 48  # MiB; a hostile server would not stop


class Space(NamedTuple):
    total: int
    used: int
    free: int


@pytest.fixture
def endless(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server that announces the size `request.param`, and sends 48 MiB in chunks."""

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("ETag", '"a"')
            self.send_header("Transfer-Encoding", "chunked")
            if request.param:
                self.send_header("Content-Length", request.param)
            self.end_headers()
            try:
                for _ in range(SENT):
                    self.wfile.write(b"%x\r\n" % MIB + bytes(MIB) + b"\r\n")
                self.wfile.write(b"0\r\n\r\n")
            except ConnectionError:
                self.close_connection = True  # the client has closed the connection

    with serving(Handler) as url:
        yield url


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """A function that sets the free space of the disk before the download, in MiB."""

    def set_free(free: int) -> None:
        def usage(_: Path) -> Space:
            used = sum(path.stat().st_size for path in tmp_path.rglob("*.part"))
            return Space(total=1 << 40, used=used, free=free * MIB - used)

        monkeypatch.setattr(shutil, "disk_usage", usage)

    return set_free


@pytest.mark.parametrize("endless", [""], indirect=True)
def test_a_file_of_unknown_size_leaves_space_and_no_part(
    endless: str, disk: Callable[[int], None], tmp_path: Path
) -> None:
    disk(256 + 16)
    with pytest.raises(ValueError, match=r"/a: 0\.0\d GB came without an end, and 0\.27 GB are left in .*is removed"):
        download(f"{endless}/a", tmp_path / "a", patience=Patience(attempts=1))
    assert [path.name for path in tmp_path.iterdir()] == ["a.lock"]
    disk(256 + 2 * SENT)
    assert download(f"{endless}/a", tmp_path / "a").stat().st_size == SENT * MIB


@pytest.mark.parametrize("endless", ["1000000"], indirect=True)
def test_a_server_that_sends_more_than_it_announces_is_refused(endless: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"sent [1-4],\d{3},\d{3} bytes of a file of 1,000,000 \(tried 2 times"):
        download(f"{endless}/a", tmp_path / "a", patience=Patience(attempts=2, pause=0.01))
    assert [path.name for path in tmp_path.iterdir()] == ["a.lock"]


def test_a_download_that_cannot_be_continued_is_not_kept(tmp_path: Path) -> None:
    class Handler(QuietHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(4 * MIB))
            self.end_headers()
            self.wfile.write(bytes(2 * MIB))
            self.close_connection = True

    with serving(Handler) as url, pytest.raises(ValueError, match="broke off after"):
        download(f"{url}/a", tmp_path / "a", patience=Patience(attempts=1))
    assert [path.name for path in tmp_path.iterdir()] == ["a.lock"]
