from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import FileEntry
from pipeline.corpus.readers import open_table
from pipeline.corpus.readers import parquet as reader
from tests.unit.corpus.readers.written import rows_of


def write(directory: Path, columns: Mapping[str, Any], **options: Any) -> Path:
    path = directory / "a.parquet"
    pq.write_table(pa.table(dict(columns)), path, **options)
    return path


TEXTS = {"de": ["Ja", ""], "en": ["Yes", None]}
ROWS = [("Ja", "Yes"), ("", None)]
STRUCT = [{"de": "Ja", "en": "Yes"}, {"de": "", "en": None}]


@pytest.mark.parametrize(
    "columns",
    [
        TEXTS,
        {"id": [1, 2], "translation": STRUCT},
        {"src": TEXTS["de"], "tgt": TEXTS["en"]},
        {"target": TEXTS["en"], "source": TEXTS["de"]},
        {code: pa.array(texts).dictionary_encode() for code, texts in TEXTS.items()},
        {code: pa.array(texts, pa.large_string()) for code, texts in TEXTS.items()},
        {code: pa.array(texts, pa.string_view()) for code, texts in TEXTS.items()},
    ],
)
@pytest.mark.parametrize("compression", ["none", "zstd", "snappy", "gzip"])
def test_texts_are_found(tmp_path: Path, columns: Mapping[str, Any], compression: str) -> None:
    assert rows_of(write(tmp_path, columns, compression=compression), "parquet") == ROWS


def test_named_columns_a_document_and_a_struct_that_is_null(tmp_path: Path) -> None:
    path = write(tmp_path, {"t": [*STRUCT, None], "n": [7, None, 9], "a.b": ["x", "y", "z"]})
    columns = {"n": "document", "t.en": "en", "t.de": "de", "a.b": "fr"}
    assert rows_of(path, "parquet", pair=None, columns=columns) == [
        ("7", "Yes", "Ja", "x"), (None, None, "", "y"), ("9", None, None, "z")
    ]  # fmt: skip


def test_row_groups_and_batches(tmp_path: Path) -> None:
    rows = [(f"ä{number}", str(number)) for number in range(25_000)]
    src, tgt = zip(*rows, strict=True)
    assert rows_of(write(tmp_path, {"de": src, "en": tgt}, row_group_size=7001), "parquet") == rows
    assert rows_of(write(tmp_path, {"de": [], "en": pa.array([], pa.string())} | {"de": pa.array([], pa.string())}),
                   "parquet") == []  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "named", "message"),
    [
        ({"x": ["a"], "y": ["b"]}, {}, r"a.parquet: no fields of de-en \(there is x, y\); say which they are"),
        (TEXTS, {"x": "de", "en": "en"}, "a.parquet: no column 'x'; it has de, en; correct columns"),
        ({"de": ["a"], "en": [1]}, {}, "a.parquet: column 'en' is int64 and no text; correct columns"),
        ({"de": ["a"], "en": [b"b"]}, {}, "a.parquet: column 'en' is binary and no text"),
        ({"de": ["a"], "en": [["b"]]}, {}, "a.parquet: column 'en' is list.* and no text"),
        ({"de": ["a"] * 300, "en": ["b"] * 299 + ["b" * (1 << 21)]}, {}, "records 1 to 300: a text of .en. is longer"),
    ],
)  # fmt: skip
def test_faults_of_columns(tmp_path: Path, columns: Mapping[str, Any], named: Mapping[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rows_of(write(tmp_path, columns), "parquet", columns=named)


def test_damage_is_named_by_file_and_record(tmp_path: Path) -> None:
    rows = {"de": [f"Zeile {n}" for n in range(4000)], "en": [f"line {n}" for n in range(4000)]}
    path = write(tmp_path, rows, use_dictionary=False, compression="none", row_group_size=1000)
    sound = path.read_bytes()
    for content in (b"", b"PAR1", b"de\ten\n", sound[:-20]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"a\.parquet: no Parquet, or a damaged one \(.*\); fetch the file again"):
            rows_of(path, "parquet")
    path.write_bytes(sound.replace(b"Zeile 2345", b"Zeile \xff345"))
    with pytest.raises(ValueError, match=r"a\.parquet: from record 2201 on: no Parquet, or a damaged one \(.*UTF8"):
        rows_of(path, "parquet")


def test_a_bomb_is_refused_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One text in a dictionary with many references to it, which take almost no bytes."""
    monkeypatch.setattr(reader, "FREE_BYTES", 1 << 20)
    path = write(tmp_path, {"de": ["x" * 1000] * 2000, "en": ["y"] * 2000})
    assert path.stat().st_size < 5000
    with pytest.raises(ValueError, match=r"a\.parquet: more than 200 times its size of \d+ bytes when it is read"):
        rows_of(path, "parquet")


def test_a_bomb_is_refused_by_its_own_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "FREE_BYTES", 1 << 20)
    path = write(tmp_path, {"de": ["x" * 1000] * 2000, "en": ["y"] * 2000}, use_dictionary=False, compression="zstd")
    entry = FileEntry(split="train", format="parquet", paths=("a",), pair=LangPair("de", "en"))
    with pytest.raises(ValueError, match=r"a\.parquet: more than 200 times its size"):
        open_table([path], entry, {})
