"""Dev and test sets that are split off training text."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.corpus.config import Rules, SplitConfig
from pipeline.corpus.fetched import FetchedTable
from tests.corpora import bitext_rows, clean_pair, prepare, table_rows

Make = Callable[..., Path]
TSV = "name: x\nfiles: [{split: train, path: t.tsv, format: tsv, columns: [de, en, document]}]\n"


def tables(source: Path, store: Path, **split: int | float) -> dict[str, FetchedTable]:
    corpus = prepare(source, "de-en", store, split=SplitConfig(**split))  # type: ignore[arg-type]
    return {table.split: table for table, _ in corpus.tables}


def by_document(num_documents: int, rows: int) -> dict[str, str]:
    lines = [f"Satz {d} {r}\tSentence {d} {r}\tdoc{d}\n" for d in range(num_documents) for r in range(rows)]
    return {"manifest.yaml": TSV, "t.tsv": "".join(lines)}


def test_whole_documents_are_held_out(make_corpus: Make, tmp_path: Path) -> None:
    tables_by_split = tables(make_corpus(by_document(100, 7)), tmp_path / "store", dev=30, test=65, max_share=0.1)
    assert {split: table.rows for split, table in tables_by_split.items()} == {"train": 609, "dev": 28, "test": 63}
    documents = {split: {row[0] for row in table_rows(table, "document")} for split, table in tables_by_split.items()}
    assert len(documents["dev"]) == 4
    assert len(documents["test"]) == 9
    assert sum(map(len, documents.values())) == 100, "no document is in two splits"
    rows = [row for table in tables_by_split.values() for row in table_rows(table, "de", "en")]
    assert len(set(rows)) == 700, "no row is lost"


def test_the_choice_depends_on_the_seed_and_not_on_positions(make_corpus: Make, tmp_path: Path) -> None:
    files = by_document(50, 5)
    backwards = {**files, "t.tsv": "".join(reversed(files["t.tsv"].splitlines(keepends=True)))}
    sizes = {"dev": 20, "test": 20}

    def dev(files: dict[str, str], name: str, seed: int) -> set[tuple[str | None, ...]]:
        tables_by_split = tables(make_corpus(files, name), tmp_path / f"{name}-{seed}", seed=seed, **sizes)
        return set(table_rows(tables_by_split["dev"], "de", "en"))

    first = dev(files, "a", 1)
    assert first == dev(backwards, "b", 1)
    assert first != dev(files, "c", 2)


def test_blocks_of_rows_replace_documents_without_names(make_corpus: Make, tmp_path: Path) -> None:
    lines = "".join(f"Satz {r}\tSentence {r}\n" for r in range(1000))
    tables_by_split = tables(make_corpus({"de-en.tsv": lines}), tmp_path / "store", dev=40, test=60, block=20)
    assert (tables_by_split["dev"].rows, tables_by_split["test"].rows) == (40, 60)
    numbers = [int(str(row[0]).split()[1]) for row in table_rows(tables_by_split["dev"], "de")]
    assert all(number + 1 in numbers for number in numbers if number % 20 != 19)


def test_only_missing_sets_are_split_off(make_corpus: Make, tmp_path: Path) -> None:
    files = by_document(40, 5)
    files["manifest.yaml"] = TSV.replace("]}]", "]}, {split: test, path: test.tsv, format: tsv, pair: de-en}]")
    files["test.tsv"] = "Ein Test\tA test\n"
    corpus = prepare(make_corpus(files), "de-en", tmp_path / "store", split=SplitConfig(dev=10, test=10))
    sizes = {(table.split, table.rows) for table, _ in corpus.tables}
    assert sizes == {("train", 190), ("dev", 10), ("test", 1)}


def test_sets_share_no_row_with_training_text(make_corpus: Make, tmp_path: Path) -> None:
    files = by_document(60, 5)
    files["t.tsv"] += "Satz 1 1\tSentence 1 1\tcopy\n" * 3
    out = clean_pair(
        make_corpus(files), "de-en", tmp_path / "store", split=SplitConfig(dev=150, test=150, max_share=0.4)
    )
    train, held_out = (
        {row for split in splits for row in bitext_rows(out.path, split)} for splits in (["train"], ["dev", "test"])
    )
    assert held_out
    assert not train & held_out


def test_a_document_too_large_is_an_error(make_corpus: Make, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"source x \(de, en\) has no dev set, and none of its documents is as small as the 30"
    ):
        tables(make_corpus(by_document(1, 300)), tmp_path / "store")


def test_rows_too_few_for_a_block_are_an_error_whose_remedy_works(make_corpus: Make, tmp_path: Path) -> None:
    corpus = make_corpus({"de-en.tsv": "".join(f"Satz {r}\tSentence {r}\n" for r in range(60))})
    with pytest.raises(ValueError, match=r"as the 6 rows of it that may be taken; .* or set corpus\.split\.block=6$"):
        tables(corpus, tmp_path / "store")
    tables_by_split = tables(corpus, tmp_path / "store", block=6)
    assert {split: table.rows for split, table in tables_by_split.items()} == {"train": 48, "dev": 6, "test": 6}


MANY = """
name: many
files:
  - {split: train, path: sparse.tsv, format: multiway_tsv, name: sparse}
  - {split: train, path: fi-en.tsv, format: tsv, pair: fi-en, name: dense}
"""


def test_the_table_with_most_rows_of_the_pair_is_split(make_corpus: Make, tmp_path: Path) -> None:
    """A multi-way table with more rows, but few rows of the pair, is not taken."""
    sparse = "".join(f"Satz {n}\tSentence {n}\t{'Yksi' if n == 7 else ''}\n" for n in range(900))
    dense = "".join(f"Lause {n}\tClause {n}\n" for n in range(600))
    source = make_corpus({"manifest.yaml": MANY, "sparse.tsv": "de\ten\tfi\n" + sparse, "fi-en.tsv": dense})
    out = clean_pair(source, "fi-en", tmp_path / "store", rules=Rules(language=None)).path
    assert [len(bitext_rows(out, split)) for split in ("dev", "test")] == [60, 60]


def test_a_test_set_without_texts_of_a_language_is_none_of_it(make_corpus: Make, tmp_path: Path) -> None:
    files = {f"{split}.tsv": "de\ten\tfi\nSatz\tSentence\t\n" for split in ("dev", "test")}
    train = "".join(f"Satz {n}\tSentence {n}\tLause {n}\n" for n in range(600))
    source = make_corpus({**files, "train.tsv": "de\ten\tfi\n" + train})
    out = clean_pair(source, "fi-en", tmp_path / "store", rules=Rules(language=None)).path
    assert [len(bitext_rows(out, split)) for split in ("dev", "test")] == [60, 60]


def test_other_pairs_do_not_change_the_sets(make_corpus: Make, tmp_path: Path) -> None:
    """The sets of the two pairs are split off different tables."""
    multi = "".join(f"Satz {n}\tSentence {n}\tLause {n}\n" for n in range(400))
    own = "".join(f"Zeile {n}\tLine {n}\n" for n in range(900))
    content = MANY.replace("pair: fi-en", "pair: de-en")
    source = make_corpus({"manifest.yaml": content, "sparse.tsv": "de\ten\tfi\n" + multi, "fi-en.tsv": own})
    measured = []
    for pairs in ("de-en", "de-en fi-en", "fi-en de-en", "en-de fi-en de-fi"):
        corpus = prepare(source, pairs, tmp_path / "store")
        pair = next(pair for pair in corpus.pairs if {pair.src, pair.tgt} == {"de", "en"})
        pair_tables = [table for table, _ in corpus.tables_of(pair)]
        assert sorted(table.split for table in pair_tables) == ["dev", "test", "train", "train"]
        measured.append({table.split: table_rows(table, "de", "en") for table in pair_tables if table.split != "train"})
    assert all(sets == measured[0] for sets in measured[1:])
    assert str(measured[0]["dev"][0][0]).startswith("Zeile")
