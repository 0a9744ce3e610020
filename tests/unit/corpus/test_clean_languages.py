"""Cleaning with rules that know languages, and near duplicates."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.corpora import prepare_corpus
from pipeline.corpus import tables
from pipeline.corpus.clean import clean
from pipeline.corpus.config import CorpusConfig, LanguageRule, NearDuplicateRule, Rules
from pipeline.corpus.funnel import funnel
from pipeline.corpus.languages import LangPair
from pipeline.stage import Store
from pipeline.tasks import DataConfig
from tests.corpora import bitext_rows, clean_pair

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


def test_rows_go_by_the_rule_and_the_funnel_says_which(make_corpus: Callable[..., Path], tmp_path: Path) -> None:
    rows = [*KEPT, *(row[1:] for row in REMOVED)]
    held = "ru\ten\nДа\tYes\n"
    train = "ru\ten\n" + "".join(f"{src}\t{tgt}\n" for src, tgt in rows)
    source = make_corpus({"train.tsv": train, "dev.tsv": held, "test.tsv": held})
    out = clean_pair(source, "ru-en", tmp_path, rules=RULES, keep_removed=True).path
    assert bitext_rows(out, "train") == KEPT
    with gzip.open(out / "removed.tsv.gz", "rt", encoding="utf-8") as file:
        assert [tuple(line.rstrip("\n").split("\t")) for line in file] == REMOVED
    result = funnel(out)
    counts = {"script": 1, "language": 2, "duplicate": 1, "near_duplicate": 1}
    assert {rule: count for rule, count in result["train"]["removed"].items() if count} == counts
    assert list(result["train"]["removed"])[-4:] == list(counts)
    assert result["not_judged"] == []


def test_the_funnel_says_which_language_is_not_judged(make_corpus: Callable[..., Path], tmp_path: Path) -> None:
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
    found: list[dict[str, bytes]] = []
    for shard_rows in (1_000, 10_000_000):
        out = tmp_path / str(shard_rows)
        out.mkdir()

        def run(function: Any, shards: Any, shard_rows: int = shard_rows) -> Any:
            assert (len(shards) > 2) == (shard_rows == 1_000)
            return [function(shard) for shard in shards]

        clean(
            config,
            LangPair("fr", "en"),
            tables=[table for table, _ in corpus.tables],
            held_out=None,
            out=out,
            shard_rows=shard_rows,
            run_shards=run,
        )
        found.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert found[0] == found[1]
    assert json.loads(found[0]["funnel.json"])["train"]["removed"]["near_duplicate"] > 10
