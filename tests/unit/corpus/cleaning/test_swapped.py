"""Tables whose two languages are exchanged are refused, and no table in order."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.corpora import prepare, table_rows

Make = Callable[..., Path]
Rows = Sequence[tuple[str, str]]


@pytest.fixture(scope="module")
def rows_of() -> Callable[[str], Rows]:
    """The rows of the sample in a language and in English."""
    lines = (Path(__file__).parents[4] / "data" / "sample" / "train.tsv").read_text(encoding="utf-8").splitlines()
    head, *rows = [line.split("\t") for line in lines]

    def rows_of_language(code: str) -> Rows:
        pairs = [(row[head.index(code)], row[head.index("en")]) for row in rows]
        return [pair for pair in pairs if all(pair)]

    return rows_of_language


def tsv(rows: Rows) -> str:
    return "".join(f"{source}\t{target}\n" for source, target in rows)


def files(train: str, rest: Rows, pair: str) -> dict[str, str]:
    return {f"train.{pair}.tsv": train, f"dev.{pair}.tsv": tsv(rest[:20]), f"test.{pair}.tsv": tsv(rest[20:40])}


@pytest.mark.parametrize("code", ["de", "zh_CN"])
def test_exchanged_columns_are_named(
    make_corpus: Make, tmp_path: Path, rows_of: Callable[[str], Rows], code: str
) -> None:
    rows = rows_of(code)
    exchanged = tsv([(target, source) for source, target in rows[40:140]])
    name = {"zh_CN": "zh-Hans"}.get(code, code)
    message = (
        rf"train\.{code}-en\.tsv: {name} and en are swapped: in \d\d of the first 100 rows the text of {name} is en, "
        rf"and that of en is {name}; exchange the columns .*, or name the pair en-{name}"
    )
    with pytest.raises(ValueError, match=message):
        prepare(make_corpus(files(exchanged, rows, f"{code}-en")), "all", tmp_path / "store")


def test_exchanged_files_are_named(make_corpus: Make, tmp_path: Path, rows_of: Callable[[str], Rows]) -> None:
    source, target = zip(*rows_of("ru")[:60], strict=True)
    sides = {"train.ru-en.en": "\n".join(source), "train.ru-en.ru": "\n".join(target)}
    with pytest.raises(ValueError, match=r"train\.ru-en\.ru and .*ru-en\.en: ru and en are swapped"):
        prepare(make_corpus(sides), "ru-en", tmp_path / "store")


def test_what_is_not_sure_is_taken(make_corpus: Make, tmp_path: Path, rows_of: Callable[[str], Rows]) -> None:
    """Text in order, a few exchanged rows among others, and texts that are too short to judge."""
    rows = rows_of("de")
    some = [(target, source) for source, target in rows[40:60]]
    short = [("OK", "OK"), ("Ja", "Yes"), ("Nein", "No")] * 20
    for number, train in enumerate([rows[40:140], [*rows[60:160], *some], some[:9], short]):
        corpus = prepare(
            make_corpus(files(tsv(train), rows, "de-en"), name=f"c{number}"), "de-en", tmp_path / f"s{number}"
        )
        table = next(table for table, _ in corpus.tables if table.split == "train")
        assert table_rows(table, "de", "en") == list(train)
