"""The one smoke run of a test session."""

import time

import pytest

from tests.system.place import Place, run

FURTHER_ROWS = {
    "de-en": [("Klicken Sie auf Datei.", "Click File."), ("Öffnen Sie das Dokument.", "Open the document.")],
    "en-tr": [("Click File.", "Dosya'yı tıklayın."), ("Open the document.", "Belgeyi açın.")],
}


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    return Place(tmp_path_factory.mktemp("smoke"))


@pytest.fixture(scope="session")
def smoke(place):
    began = time.monotonic()
    process = run([*place.command(), "LANG_PAIRS=de-en tr-en"], timeout=900)
    assert process.returncode == 0, process.stderr
    print(f"make train RECIPE=smoke took {time.monotonic() - began:.0f} s")
    return process


@pytest.fixture(scope="session")
def results(place, smoke):
    return place.root / "runs" / "smoke"


@pytest.fixture(scope="session")
def tests_directory(tmp_path_factory):
    """Two test sets: news of both pairs, one of them the other way round; talks of one. There is no training text."""
    directory = tmp_path_factory.mktemp("more")
    for name in ("news.test.de-en", "news.test.en-tr", "talks.test.de-en"):
        rows = FURTHER_ROWS[name.rpartition(".")[2]]
        (directory / f"{name}.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    return directory
