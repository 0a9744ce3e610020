"""Hostile cards and manifests: bombs of aliases, deep nesting, and texts on which patterns are slow."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.corpus.manifest import FileEntry, read_manifest
from pipeline.corpus.sources.cards import Card, read_card
from pipeline.corpus.yaml_text import load_yaml

# Ten times ten times ten …: a few hundred bytes that stand for millions.
BOMB = "a0: &a0 x\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 7))
DEEP = "a: " + "[" * 3000 + "]" * 3000 + "\n"


def card(directory: Path, text: str) -> Card:
    (directory / "README.md").write_text(text, encoding="utf-8")
    return read_card(directory)


def manifest(directory: Path, text: str) -> None:
    (directory / "manifest.yaml").write_text(text, encoding="utf-8")
    read_manifest(directory)


@pytest.mark.parametrize("text", [BOMB + "license: *a6\n", DEEP, "license: &a [*a]\n", "license: *a\n"])
@pytest.mark.parametrize(
    "read", [lambda path, text: card(path, f"---\n{text}---\n"), manifest], ids=["card", "manifest"]
)
def test_bombs_and_deep_nesting_are_refused(tmp_path: Path, read: Callable[[Path, str], object], text: str) -> None:
    """A text of 380 bytes once took 522 MB, and nesting ended in a traceback."""
    with pytest.raises(ValueError, match=r"line \d+: (alias \*a\d* stands for|nested deeper than 50)"):
        read(tmp_path, text)


@pytest.mark.parametrize("text", ["a: 2026-99-99", f"a: {'1' * 5000}", "a: \x07", "? {a: b}\n: c", "a: !!python/x y"])
def test_invalid_yaml_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r"manifest\.yaml: "):
        manifest(tmp_path, text)


def test_aliases_and_merged_mappings_of_a_manifest_are_read() -> None:
    text = "a: &a {x: [1, 2], y: no}\nb: {<<: *a, y: yes}\nc: [*a, *a]\n"
    first = {"x": [1, 2], "y": False}
    assert load_yaml(text) == {"a": first, "b": {"x": [1, 2], "y": True}, "c": [first, first]}


@pytest.mark.parametrize(
    "text",
    ["@a{\n" * 60_000, "---\n" + "\n" * 250_000, "---\n" + "- \n" * 80_000, f"@{'a' * 250_000}", f"@a{' ' * 250_000}"],
    ids=["entries", "blank lines", "no end of the header", "letters", "spaces"],
)
def test_the_time_of_a_card_is_linear_in_its_length(tmp_path: Path, text: str) -> None:
    """The time was once quadratic: half a second for 16 kB of BibTeX."""
    start = time.process_time()
    assert card(tmp_path, text) == Card()
    assert time.process_time() - start < 2.0


def test_a_long_card_is_read_up_to_a_limit(tmp_path: Path) -> None:
    entry = "@misc{a,\n  title = {A corpus}\n}\n"
    assert card(tmp_path, f"---\nlicense: mit\n---\n{entry}{'x' * (1 << 20)}\n{entry}").citation == entry.strip()
    with pytest.raises(ValueError, match=r"README\.md: its header is no YAML \(it does not end in the first 262144"):
        card(tmp_path, "---\nlicense: mit\n" + "# x\n" * 100_000 + "---\n")


def test_only_texts_of_a_card_are_taken(tmp_path: Path) -> None:
    licence = "license: [no, {a: b}, [c], 1.10]\nlicense_name: [x]\nlicense_link: {a: b}\n"
    files = "[{split: [x], path: {a: b}}, {split: test, path: [2020, {a: b}]}, [y]]"
    content = card(tmp_path, f"---\n{licence}configs: [a, {{config_name: no, data_files: {files}}}]\n---\n")
    assert content.licence == "no, 1.10 (x)"
    assert content.configs == {"no": {"*": ("y",), "test": ("2020",)}}
    assert card(tmp_path, "---\nlicense:\nconfigs: null\n---\n") == card(tmp_path, "---\n- x\n---\n") == Card()


@pytest.mark.parametrize("name", ["/abs/path", "../x", "a/../../b"])
@pytest.mark.parametrize("field", ["dataset", "archive", "path"])
def test_every_path_of_a_manifest_stays_in_the_corpus(tmp_path: Path, field: str, name: str) -> None:
    """The path in `dataset` was once not checked."""
    entry = {"dataset": f"format: huggingface, dataset: {name}", "archive": f"format: tmx, archive: {name}, path: x"}
    item = entry.get(field, f"format: tmx, path: {name}")
    with pytest.raises(ValueError, match="the path leaves the corpus directory"):
        manifest(tmp_path, f"name: x\nfiles:\n  - {{split: train, pair: de-en, {item}}}\n")


def test_a_template_cannot_be_filled_to_leave_the_corpus() -> None:
    with pytest.raises(ValueError, match="the path leaves the corpus directory"):
        FileEntry(split="train", format="huggingface", dataset="/{src}/x")
