"""A tiny corpus is built end to end from small packages that dpkg-deb makes, served by a mirror of files."""

import bz2
import gzip
import hashlib
import lzma
import random
import shutil
import subprocess

import pytest
import yaml

from data.freesoft38.build.__main__ import main
from data.freesoft38.build.output import differences, read_results
from data.freesoft38.build.splits import bucket, sentence_digest
from data.freesoft38.build.text import normalise, word_runs
from tests.unit.freesoft38.test_readers import catalogue

pytestmark = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="packages are made by dpkg-deb, of Debian")
WORDS = random.Random(0)


def sentence() -> str:
    """Return twelve English words, which no other sentence shares in a row."""
    return " ".join("".join(WORDS.choices("abcdefghijklmnop", k=5)) for _ in range(12))


def foreign(text: str, language: str) -> str:
    """Return the translation of a sentence: another word for each word."""
    return " ".join(f"{word[::-1]}{language}" for word in text.split())


HELP = {f"text/shared/{page}.html": [sentence() for _ in range(9)] for page in range(60)}
GNOME = {f"gnome-help/{page}.page": [sentence() for _ in range(20)] for page in range(40)}
MANUAL = [sentence() for _ in range(8)]
GAME = [sentence() for _ in range(5)]
DESCRIPTIONS = [sentence() for _ in range(6)]
TEST_PAGE = next(page for page in HELP if bucket(f"lo:{page}") < 12)
LEAK = f"again {' '.join(HELP[TEST_PAGE][0].split()[2:10])} ends"


def translate(texts, language):
    """Return texts in a language; English texts as they are."""
    return texts if language == "en" else [foreign(text, language) for text in texts]


def help_page(texts):
    """Return a page of LibreOffice's help."""
    blocks = "".join(f'<p id="par_{number}">{text}</p>' for number, text in enumerate(texts))
    return f'<html><body><div id="DisplayArea">{blocks}</div></body></html>'.encode()


def gnome_page(texts):
    """Return a page of GNOME's help."""
    blocks = "".join(f"<p>{text}</p>" for text in texts)
    return f'<page xmlns="http://projectmallard.org/1.0/"><title>x</title>{blocks}</page>'.encode()


def manual(texts, extra=""):
    """Return a manual page."""
    return gzip.compress(("\n.PP\n".join([".SH NAME", *texts]) + extra).encode())


def game(language):
    """Return a catalogue of the game."""
    return catalogue(dict(zip(GAME, translate(GAME, language), strict=True)))


def files_of_packages():
    """Return the files of each package, and the source that it is for."""
    texts = [*MANUAL, LEAK]
    packages = {
        ("lohelp", "libreoffice-help-en-us"): {
            f"libreoffice/help/en-US/{name}": help_page(t) for name, t in HELP.items()
        },
        ("lohelp", "libreoffice-help-de"): {
            f"libreoffice/help/de/{name}": help_page(translate(t, "de")) for name, t in HELP.items()
        },
        ("man", "manpages"): {"man/man1/x.1.gz": manual(texts)},
        ("man", "manpages-de"): {"man/de/man1/x.1.gz": manual(translate(texts, "de"), "\n.SH ÜBERSETZUNG\nvon mir")},
        ("gnomehelp", "gnome-user-docs"): {
            f"help/{code}/{name}": gnome_page(translate(t, language))
            for name, t in GNOME.items()
            for code, language in (("C", "en"), ("as", "as"))
        },
    }
    names = [("de", "game"), ("as", "other")]
    packages["wesnoth", "wesnoth-1.16-data"] = {
        f"games/wesnoth/1.16/locale/{code}/LC_MESSAGES/{name}.mo": game(code) for code, name in names
    }
    return packages


@pytest.fixture(scope="module")
def mirror(tmp_path_factory):
    """Return a directory that looks like a Debian mirror, with a table of its packages."""
    root = tmp_path_factory.mktemp("mirror")
    table = ["source\tname\tversion\tsha256\tpath"]
    for (source, name), files in files_of_packages().items():
        tree = root / "trees" / name
        for path, content in files.items():
            (tree / "usr/share" / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / "usr/share" / path).write_bytes(content)
        (tree / "usr/share/link.page").symlink_to("/etc/hostname")
        (tree / "DEBIAN").mkdir()
        control = f"Package: {name}\nVersion: 1:2-3\nArchitecture: all\nMaintainer: a <a@example.org>\nDescription: x\n"
        (tree / "DEBIAN/control").write_text(control)
        path = f"pool/main/{name}_2-3_all.deb"
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["dpkg-deb", "--build", "-Zxz", tree, root / path], check=True, stdout=subprocess.DEVNULL)
        table.append(f"{source}\t{name}\t1:2-3\t{hashlib.sha256((root / path).read_bytes()).hexdigest()}\t{path}")
    (root / "packages.tsv").write_text("\n".join(table) + "\n")
    sentences = ["split\tsha256"]
    for split, buckets in (("test", range(12)), ("dev", range(12, 20))):
        pages = [texts for page, texts in HELP.items() if bucket(f"lo:{page}") in buckets]
        sentences += [f"{split}\t{sentence_digest(text)}" for texts in pages for text in texts]
    (root / "tests.tsv").write_text("\n".join(sentences) + "\n")
    for suite in ("bookworm", "trixie", "sid", "bullseye"):
        folder = root / f"dists/{suite}/main/i18n"
        folder.mkdir(parents=True)
        for code, language in (("en", "en"), ("de", "de")):
            lines = [f"Package: x\nDescription-md5: 1\nDescription-{code}: {translate(DESCRIPTIONS, language)[0]}"]
            lines += [f" {text}\n ." for text in translate(DESCRIPTIONS, language)[1:]]
            (folder / f"Translation-{code}.bz2").write_bytes(bz2.compress(("\n".join(lines) + "\n\n").encode()))
    return root


def build(mirror, out, *arguments):
    """Build the two languages that the packages have."""
    tables = ["--packages", str(mirror / "packages.tsv"), "--tests", str(mirror / "tests.tsv")]
    return main([str(out), "--mirror", mirror.as_uri(), *tables, *arguments, "--languages", "de", "as"])


def rows(path):
    """Return the rows of a file of the corpus."""
    with (lzma.open if path.suffix == ".xz" else open)(path, "rt", encoding="utf-8", newline="\n") as stream:
        return [tuple(line.rstrip("\n").split("\t")) for line in stream]


@pytest.fixture(scope="module")
def corpus(mirror, tmp_path_factory):
    """Return the directory of a corpus that was built with descriptions."""
    out = tmp_path_factory.mktemp("built") / "corpus"
    assert build(mirror, out) == 0
    return out


def test_rows_of_every_source_are_aligned(corpus):
    """A training row has a text, its translation and its document; sources come in their order."""
    train = rows(corpus / "train/de-en.tsv.xz")
    assert all(translation == foreign(english, "de") for translation, english, _ in train)
    sources = [document.split(":")[0] for _, _, document in train]
    assert list(dict.fromkeys(sources)) == ["lohelp", "ddtp", "man", "wesnoth"]
    num_held_pages = sum(bucket(f"lo:{page}") < 20 for page in HELP)
    assert [sources.count(name) for name in ("lohelp", "ddtp", "man", "wesnoth")] == [
        9 * (60 - num_held_pages),
        6,
        8,
        5,
    ]
    assert {len(row) for row in rows(corpus / "train/as-en.tsv.xz")} == {3}


def test_test_sets_are_held_out(corpus):
    """The row of the manual with eight words of a test sentence is removed. No test text is in training text."""
    held_texts = [row[0] for split in ("dev", "test") for row in rows(corpus / f"multiway.{split}.tsv")[1:]]
    held_texts += [row[1] for split in ("dev", "test") for row in rows(corpus / f"tail/{split}.as-en.tsv")]
    assert HELP[TEST_PAGE][0] in held_texts
    runs = set().union(*(word_runs(normalise(text), 8) for text in held_texts))
    for code in ("de", "as"):
        for _, english, document in rows(corpus / f"train/{code}-en.tsv.xz"):
            assert not word_runs(normalise(english), 8) & runs
            assert bucket(document.split(":", 1)[1]) >= {"lohelp": 20, "gnomehelp": 32}.get(document.split(":")[0], 0)


def test_the_manifest_describes_the_files(corpus):
    """It has the rows and checksums of the files, and the licences of the original."""
    manifest = yaml.safe_load((corpus / "manifest.yaml").read_text(encoding="utf-8"))
    assert "MPL-2.0" in manifest["licence"]
    entries = {entry["path"]: entry for entry in manifest["files"]}
    files = {str(path.relative_to(corpus)) for path in corpus.rglob("*.tsv*")}
    assert entries.keys() == files - {"counts.tsv", "results.tsv"}
    for path, entry in entries.items():
        assert hashlib.sha256((corpus / path).read_bytes()).hexdigest() == entry["sha256"]
        assert len(rows(corpus / path)) - path.startswith("multiway") == entry["rows"]
    assert rows(corpus / "multiway.test.tsv")[0] == ("en", "de")


def test_a_second_build_is_equal_and_descriptions_can_be_left_out(mirror, corpus, tmp_path):
    """The same downloads give the same files. Without descriptions, only their rows are missing."""
    cache = ["--cache", str(corpus.with_name("corpus.downloads"))]
    assert build(mirror, tmp_path / "again", *cache) == 0
    assert (tmp_path / "again/results.tsv").read_bytes() == (corpus / "results.tsv").read_bytes()
    assert build(mirror, tmp_path / "less", "--without-descriptions", *cache) == 0
    less, full = (rows(folder / "train/de-en.tsv.xz") for folder in (tmp_path / "less", corpus))
    assert less == [row for row in full if not row[2].startswith("ddtp:")] != full


def test_results_are_compared_file_by_file(corpus):
    """A file with other rows or another checksum, a missing and a new one are named; equal results are not."""
    results = read_results(corpus / "results.tsv")
    assert len(results) == len(rows(corpus / "results.tsv")) - 1 == 6
    assert differences(results, results) == []
    changed, missing, *same = results
    other = [changed._replace(sha256="0"), *same, missing._replace(path="new.tsv")]
    assert differences(other, results) == [
        f"{changed.path}: {changed.rows} rows, {changed.rows} are expected",
        f"{missing.path}: not made, {missing.rows} rows are expected",
        f"new.tsv: {missing.rows} rows, none are expected",
    ]


def test_a_changed_package_is_refused(mirror, tmp_path):
    """A file with another checksum is removed, so that the next build fetches it again."""
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "manpages_2-3_all.deb").write_bytes(b"something else")
    with pytest.raises(ValueError, match=r"manpages_2-3_all\.deb is not the pinned file"):
        build(mirror, tmp_path / "out", "--cache", str(cache))
    assert not (cache / "manpages_2-3_all.deb").exists()
    assert not (tmp_path / "out").exists()


def test_a_full_directory_is_not_written_to(tmp_path):
    """The directory may hold the corpus of somebody."""
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="is not empty"):
        main([str(tmp_path)])
