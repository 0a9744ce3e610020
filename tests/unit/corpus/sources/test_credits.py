from pathlib import Path

import pytest
from huggingface_hub import constants

from pipeline.corpus.manifest import FileEntry, Manifest
from pipeline.corpus.sources.credits import Credit, credit
from tests.unit.corpus.sources.hub_server import COMMIT, Hub, serve_hub

BIBTEX = "@misc{muster,\n  title = {A corpus}\n}"


def write_copy(directory: Path) -> None:
    directory.mkdir(parents=True)
    (directory / "train.jsonl").write_text('{"de": "Tag", "en": "day"}\n')
    (directory / "README.md").write_text(f"---\nlicense: cc-by-4.0\n---\n# Corpus\n\n{BIBTEX}\n")


def test_the_most_specific_credit_counts(tmp_path: Path) -> None:
    write_copy(tmp_path / "maker" / "corpus")
    plain = FileEntry(split="train", format="tsv", paths=("a.tsv",))
    hub = FileEntry(split="train", format="huggingface", dataset="maker/corpus")
    own = FileEntry(split="train", format="huggingface", dataset="maker/corpus", licence="MIT", citation="me")
    silent = Manifest(name="a", files=())
    named = Manifest(name="a", files=(), licence="GPL-3.0", citation="them")
    cache = tmp_path / "cache"
    assert credit(plain, silent, tmp_path, cache) == Credit(licence="", citation="")
    assert credit(plain, named, tmp_path, cache) == Credit(licence="GPL-3.0", citation="them")
    assert credit(hub, silent, tmp_path, cache) == Credit(licence="cc-by-4.0", citation=BIBTEX)
    assert credit(hub, named, tmp_path, cache) == Credit(licence="GPL-3.0", citation="them")
    assert credit(own, named, tmp_path, cache) == Credit(licence="MIT", citation="me")


def test_the_card_of_a_hub_gives_the_credit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_copy(tmp_path / "hub" / "maker" / "corpus")
    monkeypatch.delenv("HF_HOME", raising=False)
    monkeypatch.setenv("HF_XET_CACHE", str(tmp_path / "xet"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", constants.HF_HUB_CACHE)
    entry = FileEntry(split="train", format="huggingface", dataset="maker/corpus")
    with serve_hub(Hub(tmp_path / "hub")) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        result = credit(entry, Manifest(name="a", files=()), tmp_path, tmp_path / "cache")
    assert result == Credit(licence="cc-by-4.0", citation=BIBTEX, commit=COMMIT)
