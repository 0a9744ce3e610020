import logging
import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from pipeline.corpus.sources.download import MissingFileError, Patience, download
from tests.unit.corpus.sources.file_server import Site, free_port, serve

SHORT = Patience(timeout=0.3, attempts=3, pause=0.01)
CONTENT = bytes(range(256)) * 2000


@pytest.fixture
def site() -> Iterator[Site]:
    with serve(Site(files={"/corpus.tsv": CONTENT})) as site:
        yield site


def test_a_file_is_fetched_once_and_checked(site: Site, tmp_path: Path) -> None:
    path, digest = tmp_path / "deep" / "corpus.tsv", sha256(CONTENT).hexdigest()
    assert download(f"{site.url}/corpus.tsv", path, sha256=digest) == path
    assert path.read_bytes() == CONTENT
    assert download(f"{site.url}/corpus.tsv", path, sha256=digest).read_bytes() == CONTENT
    assert len(site.requests) == 1
    assert sorted(p.name for p in path.parent.iterdir()) == ["corpus.tsv", "corpus.tsv.lock"]
    path.write_bytes(b"something else")
    assert download(f"{site.url}/corpus.tsv", path, sha256=digest).read_bytes() == CONTENT


@pytest.mark.parametrize("validators", [("ETag",), ("Last-Modified",)])
def test_a_connection_that_is_cut_continues_where_it_stopped(
    site: Site, tmp_path: Path, validators: tuple[str, ...]
) -> None:
    site.faults["/corpus.tsv"], site.validators = ["cut", "cut"], validators
    assert download(f"{site.url}/corpus.tsv", tmp_path / "a", patience=SHORT).read_bytes() == CONTENT
    half, quarter = len(CONTENT) // 2, len(CONTENT) // 4
    assert site.ranges_asked() == ["", f"bytes={half}-", f"bytes={half + quarter}-"]


def test_the_next_call_continues_too(site: Site, tmp_path: Path) -> None:
    url, path = f"{site.url}/corpus.tsv", tmp_path / "a"
    site.faults["/corpus.tsv"] = ["cut", 503, 503]
    with pytest.raises(ValueError, match=r"answered 503 .*tried 3 times .*256,000 bytes are kept") as caught:
        download(url, path, patience=SHORT)
    assert f"put it at {path}" in str(caught.value)
    assert not path.exists()
    site.requests.clear()
    assert download(url, path, patience=SHORT).read_bytes() == CONTENT
    assert site.ranges_asked() == ["bytes=256000-"]


@pytest.mark.parametrize(
    ("validators", "ranges"), [((), True), (("ETag",), False)], ids=["unknown again", "without ranges"]
)
def test_a_server_that_cannot_continue_is_asked_from_the_start(
    site: Site, tmp_path: Path, validators: tuple[str, ...], ranges: bool
) -> None:
    site.faults["/corpus.tsv"], site.validators, site.ranges = ["cut"], validators, ranges
    assert download(f"{site.url}/corpus.tsv", tmp_path / "a", patience=SHORT).read_bytes() == CONTENT


def test_a_file_that_changed_between_attempts_is_fetched_from_the_start(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    changed = bytes(reversed(CONTENT))
    site.faults["/corpus.tsv"] = ["cut"]
    site.after_cut = lambda: site.files.update({"/corpus.tsv": changed})
    with caplog.at_level(logging.INFO):
        assert download(f"{site.url}/corpus.tsv", tmp_path / "a", patience=SHORT).read_bytes() == changed
    assert "has changed since the last attempt" in caplog.text


def test_after_a_passing_fault_it_tries_again(site: Site, tmp_path: Path) -> None:
    site.faults["/corpus.tsv"] = [503, 429]
    assert download(f"{site.url}/corpus.tsv", tmp_path / "a", patience=SHORT).read_bytes() == CONTENT
    assert len(site.requests) == 3


def test_a_server_may_say_when_to_try_again_within_a_limit(site: Site, tmp_path: Path) -> None:
    site.faults["/corpus.tsv"], site.retry_after = [503], "3600"
    patience = Patience(timeout=0.3, attempts=3, pause=0.01, longest_pause=0.05)
    assert download(f"{site.url}/corpus.tsv", tmp_path / "a", patience=patience).read_bytes() == CONTENT


@pytest.mark.parametrize(("status", "kind"), [(403, ValueError), (404, MissingFileError), (410, MissingFileError)])
def test_a_refusal_is_final(site: Site, tmp_path: Path, status: int, kind: type[ValueError]) -> None:
    site.faults["/corpus.tsv"] = [status]
    with pytest.raises(ValueError, match=rf"corpus.tsv: answered {status} .*correct the address") as error:
        download(f"{site.url}/corpus.tsv", tmp_path / "a", patience=SHORT)
    assert error.type is kind
    assert len(site.requests) == 1


def test_a_server_that_never_answers(site: Site, tmp_path: Path) -> None:
    site.faults["/corpus.tsv"] = ["silence"] * 3
    patience = Patience(timeout=0.1, attempts=2, pause=0.01)
    with pytest.raises(ValueError, match=r"corpus.tsv: did not answer for 0.1 s \(tried 2 times in 0 s\); where there"):
        download(f"{site.url}/corpus.tsv", tmp_path / "a", patience=patience)


@pytest.mark.parametrize("host", ["127.0.0.1", "corpora.invalid"])
def test_nobody_listens(tmp_path: Path, host: str) -> None:
    with pytest.raises(ValueError, match=r"does not answer .*(refused|resol).*\(tried 3 times"):
        download(f"http://{host}:{free_port()}/a.tsv", tmp_path / "a", patience=SHORT)


def test_another_file_than_the_checksum_says(site: Site, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"corpus.tsv: sha256 is .* where the manifest says 00aa"):
        download(f"{site.url}/corpus.tsv", tmp_path / "a", sha256="00aa", patience=SHORT)
    assert [p.name for p in tmp_path.iterdir()] == ["a.lock"]


def test_pieces_of_two_files_are_not_taken_for_one(site: Site, tmp_path: Path) -> None:
    """A server changes a file without announcing it. The checksum shows it, and the second attempt is complete."""
    url, path = f"{site.url}/corpus.tsv", tmp_path / "a"
    site.faults["/corpus.tsv"], site.validators = ["cut", 404], ("Last-Modified",)
    site.after_cut = lambda: site.files.update({"/corpus.tsv": CONTENT[::-1]})
    with pytest.raises(ValueError, match="404"):
        download(url, path, patience=SHORT)
    digest = sha256(CONTENT[::-1]).hexdigest()
    assert download(url, path, sha256=digest, patience=SHORT).read_bytes() == CONTENT[::-1]
    assert site.ranges_asked()[2:] == ["bytes=256000-", ""]


def test_no_room_for_it(site: Site, tmp_path: Path) -> None:
    site.claimed = 1 << 60
    with pytest.raises(ValueError, match=r"1152921504.61 GB to come and .* GB free in"):
        download(f"{site.url}/corpus.tsv", tmp_path / "a", patience=SHORT)


def test_two_at_once_fetch_it_once(site: Site, tmp_path: Path) -> None:
    url = f"{site.url}/corpus.tsv"
    threads = [threading.Thread(target=download, args=(url, tmp_path / "a")) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "a").read_bytes() == CONTENT
    assert len(site.requests) == 1
