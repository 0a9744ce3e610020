"""Small real artifacts that several suites train on."""

import functools
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import pipeline.config
from pipeline.jobs.default_precision import default_precision
from tests.rotation import COLLECTED, long_name, parse_part, parts_of_long_tests

settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", settings.get_profile("busy machine"), max_examples=1_000)  # SECURITY.md
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "busy machine"))

ROOT = Path(__file__).resolve().parent.parent
TOGETHER = ("tests/system/", "tests/parallel/", "tests/cuda/")  # what one test of these makes, others use


def _composed_once(compose: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Return `compose_tree` with a memory of the repository's own configurations, which do not change during tests.

    Hydra takes a sixth of a second for each, and of the thousands that the unit tests compose a third repeats another.
    """
    trees: dict[tuple[str, ...], dict[str, Any]] = {}

    @functools.wraps(compose)
    def composed(primary: str, overrides: Sequence[str], root: Path = ROOT) -> dict[str, Any]:
        if root != ROOT:
            return compose(primary, overrides, root)
        key = (default_precision("auto"), primary, *overrides)  # a test may say that there is a GPU
        if key not in trees:
            trees[key] = compose(primary, overrides, root)
        return deepcopy(trees[key])

    return composed


pipeline.config.compose_tree = _composed_once(pipeline.config.compose_tree)  # before a test imports it by name


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long-part", default="", metavar="K/N", help="of the long tests, run the K-th of N parts alone")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests that tests/long_seconds.json names, and the nightly ones, as long, and note what there is."""
    nightly = item.nodeid if item.get_closest_marker("nightly") else ""
    name = long_name(item.nodeid) or nightly
    if name:
        item.add_marker("long")
    item.config.stash.setdefault(COLLECTED, {}).setdefault(item.nodeid.partition("::")[0], set()).add(name)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the long tests of other parts, and those that no part holds because they take too long."""
    if not config.getoption("--long-part"):
        return
    try:
        part, parts = parse_part(config.getoption("--long-part"))
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error
    chosen = parts_of_long_tests(parts)
    deselected = [
        item for item in items if item.get_closest_marker("nightly") or chosen.get(long_name(item.nodeid), part) != part
    ]
    config.hook.pytest_deselected(items=deselected)
    items[:] = [item for item in items if item not in deselected]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Tests of a folder above go to the same one of pytest-xdist's processes; of the others, those of a file do."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((folder for folder in TOGETHER if nodeid.startswith(folder)), nodeid.partition("::")[0])

    return Scheduling(config, log)


@dataclass(frozen=True)
class Prepared:
    """Two pairs of the embedded sample, cleaned and encoded."""

    pairs: list[str]
    bitexts: list[str]
    encoded: list[str]
    vocabulary: str


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Yield a Chromium. It ends with its module, because its event loop would forbid asyncio.run to the next ones."""
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    from pipeline.corpus.languages import LangPair
    from pipeline.vocab.config import VocabConfig
    from pipeline.vocab.encode import encode
    from pipeline.vocab.tokenizer import train_vocabulary
    from tests.corpora import clean_pair

    root = tmp_path_factory.mktemp("prepared")

    def directory(name: str) -> Path:
        (root / name).mkdir()
        return root / name

    pairs = [LangPair("ja", "en"), LangPair("tr", "en")]
    bitexts = {pair: clean_pair(ROOT / "data" / "sample", pair.name, root).path for pair in pairs}
    vocabulary = directory("vocab")
    train_vocabulary(VocabConfig(shared=False, source_size=3000, target_size=1000), bitexts, vocabulary)
    encoded = {pair: directory(f"encoded-{pair.name}") for pair in pairs}
    for pair, out in encoded.items():
        encode(vocabulary, bitexts[pair], pair, max_source_tokens=96, max_target_tokens=64, out=out)
    return Prepared(
        pairs=[pair.name for pair in pairs],
        bitexts=[str(path) for path in bitexts.values()],
        encoded=[str(path) for path in encoded.values()],
        vocabulary=str(vocabulary),
    )
