"""The one smoke run of a test session."""

import time

import pytest

from tests.system.place import Place, run


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
