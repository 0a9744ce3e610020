"""Cleaning with the rules of languages, scripts and near duplicates."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.corpus import tables
from pipeline.corpus.config import CorpusConfig, LanguageRule, NearDuplicateRule, Rules
from pipeline.corpus.funnel import funnel
from pipeline.dag.cleaning import prepare_corpus
from pipeline.dag.store import Store
from pipeline.tasks import DataConfig
from tests.corpora import bitext_rows, clean_in_shards, clean_pair

RULES = Rules(min_script=0.5, language=LanguageRule(), near_duplicates=NearDuplicateRule(), held_out=None)
KEPT = [
    ("Выберите эту команду, чтобы сохранить документ.", "Choose this command to save the document."),
    ("Откройте LibreOffice Writer.", "Open LibreOffice Writer."),
]
REMOVED = [
    ("script", "Choose the name of the new document.", "Choose the name of another document."),
    ("language", "Виберіть цю команду, щоб зберегти документ під іншою назвою.", "Choose this to save it."),
    ("language", "Откройте таблицу двойным щелчком.", "Öffnen Sie die Tabelle mit einem Doppelklick."),
    ("duplicate", *KEPT[0]),
    ("near_duplicate", "Выберите эту команду: чтобы сохранить документ…", "Choose this command to save the document!"),
]


def test_every_row_is_removed_and_counted_by_its_rule(make_corpus: Callable[..., Path], tmp_path: Path) -> None:
    rows = [*KEPT, *(row[1:] for row in REMOVED)]
    held_out = "ru\ten\nДа\tYes\n"
    train = "ru\ten\n" + "".join(f"{src}\t{tgt}\n" for src, tgt in rows)
    source = make_corpus({"train.tsv": train, "dev.tsv": held_out, "test.tsv": held_out})
    out = clean_pair(source, "ru-en", tmp_path, rules=RULES, keep_removed=True).path
    assert bitext_rows(out, "train") == KEPT
    with gzip.open(out / "removed.tsv.gz", "rt", encoding="utf-8") as file:
        assert [tuple(line.rstrip("\n").split("\t")) for line in file] == REMOVED
    result = funnel(out)
    counts = {"script": 1, "language": 2, "duplicate": 1, "near_duplicate": 1}
    assert {rule: count for rule, count in result["train"]["removed"].items() if count} == counts
    assert list(result["train"]["removed"])[-4:] == list(counts)
    assert result["not_judged"] == []


def test_the_funnel_names_languages_that_are_not_judged(make_corpus: Callable[..., Path], tmp_path: Path) -> None:
    table = "tlh\ten\nnuqneH\tWhat do you want?\n"
    source = make_corpus({f"{split}.tsv": table for split in ("train", "dev", "test")})
    out = clean_pair(source, "tlh-en", tmp_path, rules=RULES).path
    assert funnel(out)["not_judged"] == [
        "script: no script of tlh is known",
        "language: the model does not know tlh",
    ]


def test_any_number_of_shards_gives_the_same_files(
    sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_GROUP_ROWS", 500)
    config = CorpusConfig(path=str(sample), keep_removed=True, rules=RULES)
    corpus = prepare_corpus(config, ["fr-en"], Store(tmp_path / "store"), DataConfig())
    many, files_of_many = clean_in_shards(config, corpus, 1_000, tmp_path / "many")
    assert many > 2
    assert clean_in_shards(config, corpus, 10_000_000, tmp_path / "one") == (1, files_of_many)
    assert json.loads(files_of_many["funnel.json"])["train"]["removed"]["near_duplicate"] > 10
