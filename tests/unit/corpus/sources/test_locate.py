import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import FileEntry
from pipeline.corpus.sources.archives import extract
from pipeline.corpus.sources.copies import files_here
from pipeline.corpus.sources.download import Patience
from pipeline.corpus.sources.locate import locate
from tests.unit.corpus.sources.file_server import Site, serve

DE, EN = b"Guten Tag\n", b"Good day\n"


def tar(path: Path, members: dict[str, bytes | str], mode: str = "w") -> Path:
    """Write an archive of files (bytes) and symbolic links (text)."""
    with tarfile.open(path, mode) as file:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                file.addfile(info)
            else:
                info.size = len(content)
                file.addfile(info, io.BytesIO(content))
    return path


def tar_zst(path: Path, members: dict[str, bytes | str]) -> Path:
    plain = tar(path.with_suffix(".plain"), members)
    with pa.CompressedOutputStream(str(path), "zstd") as stream:
        stream.write(plain.read_bytes())
    plain.unlink()
    return path


def zipped(path: Path, members: dict[str, bytes | str]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


ARCHIVES: dict[str, Callable[[Path, dict[str, bytes | str]], Path]] = {
    "tar": tar,
    "tar.gz": lambda path, members: tar(path, members, "w:gz"),
    "tar.bz2": lambda path, members: tar(path, members, "w:bz2"),
    "tar.xz": lambda path, members: tar(path, members, "w:xz"),
    "tar.zst": tar_zst,
    "zip": zipped,
}


def entry(*paths: str, archive: str = "", sha: tuple[str, ...] = ()) -> FileEntry:
    pair = LangPair("de", "en")
    return FileEntry(split="train", format="aligned", paths=paths, pair=pair, archive=archive, sha256=sha)


def test_files_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "a.de").write_bytes(DE)
    (tmp_path / "train" / "a.en").write_bytes(EN)
    paths = locate(entry("train/a.de", "train/a.en"), tmp_path, tmp_path / "cache")
    assert paths == [tmp_path / "train" / "a.de", tmp_path / "train" / "a.en"]
    assert not (tmp_path / "cache").exists()
    with pytest.raises(ValueError, match=r"train/a.dee does not exist; did you mean a.de\? put the file there"):
        locate(entry("train/a.dee"), tmp_path, tmp_path / "cache")
    with pytest.raises(ValueError, match="train is a directory"):
        locate(entry("train"), tmp_path, tmp_path / "cache")
    with pytest.raises(
        ValueError, match=r"there is no directory .*nowhere: correct corpus.path or corpus.add, put the"
    ):
        locate(entry("a.de"), tmp_path / "nowhere", tmp_path / "cache")
    digests = (sha256(DE).hexdigest(), "00")
    with pytest.raises(ValueError, match=r"train/a.en: sha256 is .* where the manifest says 00"):
        locate(entry("train/a.de", "train/a.en", sha=digests), tmp_path, tmp_path / "cache")


def test_urls(tmp_path: Path) -> None:
    files, cache = tmp_path / "files", tmp_path / "cache"
    files.mkdir()
    (tmp_path / "mit Leer.de").write_bytes(DE)
    with serve(Site(files={"/v1/a.en.txt?x=1": EN})) as site:
        urls = ((tmp_path / "mit Leer.de").as_uri(), f"{site.url}/v1/a.en.txt?x=1")
        paths = locate(entry(*urls, sha=(sha256(DE).hexdigest(), sha256(EN).hexdigest())), files, cache)
        assert [path.read_bytes() for path in paths] == [DE, EN]
        assert paths[1].name == "a.en.txt"
        assert cache in paths[1].parents
    # without the server, the fetched file is used, and so is a file with its name in the directory of the corpus
    assert locate(entry(urls[1]), files, cache) == [paths[1]]
    with pytest.raises(ValueError, match=f"no network, fetch the file elsewhere and put it at {files}/a.en.txt"):
        locate(entry(urls[1]), files, tmp_path / "empty", patience=Patience(attempts=2, pause=0.01))
    (files / "a.en.txt").write_bytes(b"by hand")
    assert locate(entry(urls[1]), files, tmp_path / "empty") == [files / "a.en.txt"]


def test_files_on_this_machine(tmp_path: Path) -> None:
    """The key of a stage needs files of the directory, file URLs, and local files in place of a URL."""
    for name in ("a.de", "a b.en", "elsewhere.de"):
        (tmp_path / name).write_text(name)
    paths = ("a.de", "https://example.org/x/a%20b.en?v=1", (tmp_path / "elsewhere.de").as_uri(), "gone.de")
    assert [path.name for path in files_here(entry(*paths), tmp_path)] == ["a.de", "a b.en", "elsewhere.de"]
    assert files_here(entry("x", archive="https://example.org/a.de"), tmp_path) == [tmp_path / "a.de"]
    (tmp_path / "maker" / "corpus").mkdir(parents=True)
    (tmp_path / "maker" / "corpus" / "dev.parquet").write_text("")
    (tmp_path / "maker" / "corpus" / "test.parquet").write_text("")
    hub = FileEntry(split="test", format="huggingface", dataset="maker/corpus")
    assert files_here(hub, tmp_path) == [tmp_path / "maker" / "corpus" / "test.parquet"]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("file://elsewhere/a.tsv", "names the host elsewhere"),
        ("https://example.org/", "names no file"),
    ],
)
def test_urls_that_cannot_be_read(tmp_path: Path, url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        locate(entry(url), tmp_path, tmp_path / "cache")


@pytest.mark.parametrize("kind", ARCHIVES)
def test_members_of_archives(tmp_path: Path, kind: str) -> None:
    ARCHIVES[kind](tmp_path / f"a.{kind}", {"./x/a.de": DE, "x/a.en": EN, "x/more.txt": b"more"})
    digests = (sha256(EN).hexdigest(), sha256(DE).hexdigest())
    paths = locate(entry("x/a.en", "x/a.de", archive=f"a.{kind}", sha=digests), tmp_path, tmp_path / "cache")
    assert [path.read_bytes() for path in paths] == [EN, DE]
    assert {p.name for p in (tmp_path / "cache").rglob("*") if p.is_file()} - {f"{paths[0].parts[-3]}.lock"} == {
        "a.de",
        "a.en",
    }
    with pytest.raises(ValueError, match=rf"a.{kind}: has no member 'x/b.en'; did you mean x/a.en"):
        locate(entry("x/b.en", archive=f"a.{kind}"), tmp_path, tmp_path / "cache")
    with pytest.raises(ValueError, match=rf"a.{kind}: member x/a.en: sha256 is"):
        locate(entry("x/a.en", archive=f"a.{kind}", sha=("00",)), tmp_path, tmp_path / "cache")


def test_a_new_archive_of_the_same_name_is_unpacked_again(tmp_path: Path) -> None:
    for content in (DE, EN + EN):
        zipped(tmp_path / "a.zip", {"a.txt": content})
        (path,) = locate(entry("a.txt", archive="a.zip"), tmp_path, tmp_path / "cache")
        assert path.read_bytes() == content


def test_an_archive_from_a_server(tmp_path: Path) -> None:
    content = tar(tmp_path / "a.tar", {"x/a.de": DE}).read_bytes()
    (tmp_path / "a.tar").unlink()
    with serve(Site(files={"/a.tar": content}, faults={"/a.tar": ["cut"]})) as site:
        patience = Patience(pause=0.01)
        packed = entry("x/a.de", archive=f"{site.url}/a.tar")
        (path,) = locate(packed, tmp_path, tmp_path / "cache", patience=patience)
        assert path.read_bytes() == DE
        assert locate(packed, tmp_path, tmp_path / "cache") == [path]
        assert len(site.requests) == 2


@pytest.mark.parametrize("name", ["../evil.de", "/evil.de", "x/../../evil.de", "..\\evil.de"])
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_members_that_leave_the_directory(tmp_path: Path, kind: str, name: str) -> None:
    archive = ARCHIVES[kind](tmp_path / f"a.{kind}", {"a.de": DE, name: b"evil"})
    with pytest.raises(ValueError, match="leaves the directory; do not trust") as caught:
        extract(archive, ["a.de"], tmp_path / "out")
    assert repr(name) in str(caught.value)
    assert not list(tmp_path.rglob("evil.de"))


def test_links_and_devices(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as file:
        for name, kind in (("link", tarfile.SYMTYPE), ("hard", tarfile.LNKTYPE), ("pipe", tarfile.FIFOTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            file.addfile(info)
        info = tarfile.TarInfo("link/under")
        info.size = len(DE)
        file.addfile(info, io.BytesIO(DE))
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as zip_file:
        link = zipfile.ZipInfo("link")
        link.create_system, link.external_attr = 3, 0o120777 << 16
        zip_file.writestr(link, "/etc/passwd")
    for archive, name in (("a.tar", "link"), ("a.tar", "hard"), ("a.tar", "pipe"), ("a.zip", "link")):
        with pytest.raises(ValueError, match=f"{archive}: member '{name}' is no file but a link or a device"):
            extract(tmp_path / archive, [name], tmp_path / "out")
    assert extract(tmp_path / "a.tar", ["link/under"], tmp_path / "new")[0].read_bytes() == DE


@pytest.mark.parametrize("kind", ["tar.gz", "tar.xz", "tar.zst", "zip"])
def test_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr("pipeline.corpus.sources.archives._SMALL", 1 << 20)
    archive = ARCHIVES[kind](tmp_path / f"a.{kind}", {"a.de": bytes(8 << 20), "b.de": DE})
    with pytest.raises(ValueError, match=r"bytes that unpack to more than [\d,]+, up to member 'a.de'"):
        extract(archive, ["b.de"], tmp_path / "out")
    assert not list((tmp_path / "out").rglob("*.de"))


def test_a_bomb_that_lies_about_its_size(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "a.zip", {"a.de": bytes(1 << 20)})
    honest = (1 << 20).to_bytes(4, "little")
    assert archive.read_bytes().count(honest) == 2
    archive.write_bytes(archive.read_bytes().replace(honest, (100).to_bytes(4, "little")))
    with pytest.raises(ValueError, match=r"a.zip: (damaged|member 'a.de' is larger)"):
        extract(archive, ["a.de"], tmp_path / "out")
    assert not (tmp_path / "out" / "a.de").exists()


@pytest.mark.parametrize("kind", ARCHIVES)
def test_damaged_archives(tmp_path: Path, kind: str) -> None:
    text = "".join(f"{number * 7919 % 10007} lines of text\n" for number in range(5000)).encode()
    archive = ARCHIVES[kind](tmp_path / f"a.{kind}", {"a.de": text})
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size * 2 // 3])
    with pytest.raises(ValueError, match=rf"a.{kind}: damaged, or no tar or zip"):
        extract(archive, ["a.de"], tmp_path / "out")
    assert not (tmp_path / "out" / "a.de").exists()


def test_no_archive_at_all(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_text("<html>not found</html>")
    with pytest.raises(ValueError, match=r"a.tar: damaged, or no tar or zip"):
        locate(entry("a.de", archive="a.tar"), tmp_path, tmp_path / "cache")
    with pytest.raises(ValueError, match=r"archive a.tar without a path"):
        locate(entry(archive="a.tar"), tmp_path, tmp_path / "cache")


def test_an_encrypted_zip(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "a.zip", {"a.de": DE})
    content = bytearray(archive.read_bytes())
    content[6] |= 1  # the flag in the local header and in the directory
    content[content.index(b"PK\x01\x02") + 8] |= 1
    archive.write_bytes(content)
    with pytest.raises(ValueError, match=r"a.zip: damaged, or no tar or zip .*encrypted"):
        extract(archive, ["a.de"], tmp_path / "out")


def test_locating_files_imports_no_model(tmp_path: Path) -> None:
    program = "import sys, pipeline.corpus.sources.locate\nprint(*sys.modules)"
    root = Path(__file__).parents[4]
    result = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert not set(result.stdout.split()) & {"torch", "datasets", "sentencepiece", "mtdata"}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(kind=st.sampled_from(["tar", "tar.gz", "zip"]), at=st.floats(0, 1), byte=st.integers(0, 255), cut=st.booleans())
def test_fuzz_of_archives(tmp_path: Path, kind: str, at: float, byte: int, cut: bool) -> None:
    """With one byte changed, or without its end, an archive gives the right content or an error that names it."""
    archive = ARCHIVES[kind](tmp_path / f"fuzz.{kind}", {"x/a.de": DE * 20, "x/a.en": EN})
    content = bytearray(archive.read_bytes())
    index = int(at * (len(content) - 1))
    archive.write_bytes(content[:index] if cut else content[:index] + bytes([byte]) + content[index + 1 :])
    out, message = Path(tempfile.mkdtemp(dir=tmp_path)), ""
    try:
        extract(archive, ["x/a.en"], out)
    except ValueError as error:
        message = str(error)
    assert message.startswith(str(archive) if message else "")
    assert (out / "x" / "a.en").exists() == (not message)
    if not message and kind != "tar":  # a plain tar has no checksum of its contents
        assert (out / "x" / "a.en").read_bytes() == EN
