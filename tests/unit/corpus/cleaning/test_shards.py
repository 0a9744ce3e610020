"""Cleaning in shards, with duplicates and near duplicates that alternate."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.corpus import tables
from pipeline.corpus.cleaning import clean as module
from pipeline.corpus.cleaning.clean import REMOVED
from pipeline.corpus.config import CorpusConfig, NearDuplicateRule, Rules
from pipeline.dag.cleaning import prepare_corpus
from pipeline.dag.store import Store
from pipeline.tasks import DataConfig
from tests.corpora import clean_in_shards, clean_pair
from tests.interruption import killed_while_removing

RULES = Rules(near_duplicates=NearDuplicateRule(), language=None, held_out=None)


def test_any_number_of_shards_removes_the_same_rows_in_the_same_order(
    make_corpus: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_GROUP_ROWS", 100)
    words = [f"{a}{b}" for a in "bdfgklmn" for b in ("ato", "eti", "oku", "ira", "usa")]
    rows = [" ".join(words[(7 * i + i * k) % 40] + str(i // 40) for k in range(9)) for i in range(300)]
    rows = [
        text for i, row in enumerate(rows) for text in ([row, rows[i // 2], f"{rows[i // 3]}!"] if i % 2 else [row])
    ]
    content = "de\ten\n" + "".join(f"{text}\t{text[::-1]}\n" for text in rows)
    source = make_corpus({"train.tsv": content, "dev.tsv": "de\ten\nja\tyes\n", "test.tsv": "de\ten\nja\tyes\n"})
    config = CorpusConfig(path=str(source), keep_removed=True, rules=RULES)
    corpus = prepare_corpus(config, ["de-en"], Store(tmp_path / "store"), DataConfig())
    files_of = dict(clean_in_shards(config, corpus, rows, tmp_path / str(rows)) for rows in (100, 250, 10_000))
    assert sorted(files_of) == [1, 2, 6]
    removed = json.loads(files_of[1]["funnel.json"])["train"]["removed"]
    assert min(removed["duplicate"], removed["near_duplicate"]) > 50
    for number in (2, 6):
        assert files_of[number].keys() == files_of[1].keys() > {REMOVED}
        for name, content_of_one in files_of[1].items():
            assert files_of[number][name] == content_of_one, (number, name)


def test_an_interrupted_removal_of_the_shards_continues(
    make_corpus: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = "de\ten\n" + "".join(f"Satz {n}\tSentence {n}\n" for n in range(9))
    source = make_corpus({"train.tsv": content, "dev.tsv": "de\ten\nja\tyes\n", "test.tsv": "de\ten\nja\tyes\n"})
    with monkeypatch.context() as patch:
        patch.setattr(module, "remove_tree", killed_while_removing)
        with pytest.raises(KeyboardInterrupt):
            clean_pair(source, "de-en", tmp_path / "store", rules=RULES)
    (partial,) = (tmp_path / "store" / "clean").glob("*.partial")
    assert (partial / "shards").is_dir()
    resumed = clean_pair(source, "de-en", tmp_path / "store", rules=RULES)
    assert resumed.content == clean_pair(source, "de-en", tmp_path / "other", rules=RULES).content
    assert not (resumed.path / "shards").exists()


def test_dev_and_test_are_checked_before_the_cleaning(make_corpus: Callable[..., Path], tmp_path: Path) -> None:
    source = make_corpus(
        {"train.tsv": "de\ten\nGut\tGood\n", "dev.tsv": "de\ten\na\t\n\tb\n", "test.tsv": "de\ten\nc\td\n"}
    )
    with pytest.raises(ValueError, match=r"pair de-en: no dev rows \(kept of read: dev 0 of 0, test 1 of 1\)"):
        clean_pair(source, "de-en", tmp_path / "store", rules=RULES)
    (partial,) = (tmp_path / "store" / "clean").glob("*.partial")
    assert not (partial / "shards").exists()
