"""Hostile data sets of a hub, which have the same limits as local files."""

import bz2
import gzip
import json
import lzma
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.corpus.manifest import FileEntry
from pipeline.corpus.readers.lines import MAX_LINE_BYTES
from pipeline.corpus.readers.streams import read_chunks
from pipeline.corpus.sources.hub_tables import open_dataset
from tests.unit.corpus.readers.written import zstd

PACK: Mapping[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd,
}
ROWS = [{"de": 'Er sagt "ja"', "en": "a,\nb"}, {"de": "None", "en": None}, {"de": "ö", "en": "x\ty"}]
TABLE = pa.table({"de": [row["de"] for row in ROWS], "en": [row["en"] for row in ROWS], "n": [1, 2, 3]})
CSV = 'n,de,en\n1,"Er sagt ""ja""","a,\nb"\n\n2,None,\n3,ö,x\ty\n'
TSV = 'n\tde\ten\n1\t"Er sagt ""ja"""\t"a,\nb"\n\n2\tNone\t\n3\tö\t"x\ty"\n'
COLUMNS = {"de": "de", "en": "en"}


def written(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def rows(directory: Path, columns: Mapping[str, str] = COLUMNS) -> list[dict[str, str | None]]:
    """Return the rows of the copy of a data set."""
    entry = FileEntry(split="train", format="huggingface", dataset="maker/corpus", columns=columns)
    table = open_dataset(entry, directory, directory / "cache", {})
    return [row for batch in table.batches for row in batch.to_pylist()]


def copied(directory: Path, name: str, content: bytes = b"") -> Path:
    return written(directory / "maker" / "corpus" / name, content)


def arrow(path: Path, table: pa.Table, *, stream: bool = True, compression: str | None = None) -> None:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(str(path), table.schema, options=options) as writer:
        writer.write_table(table)


@pytest.mark.parametrize("suffix", PACK)
def test_every_kind_of_text_is_read(tmp_path: Path, suffix: str) -> None:
    contents = {
        "csv": CSV.encode(),
        "tsv": TSV.encode(),
        "jsonl": "\n".join(json.dumps({**row, "n": n}) for n, row in enumerate(ROWS, start=1)).encode(),
    }
    for kind, content in contents.items():
        file = copied(tmp_path, f"train.{kind}{suffix}", PACK[suffix](content))
        assert rows(tmp_path, {**COLUMNS, "n": "document"}) == [
            {**row, "document": str(n)} for n, row in enumerate(ROWS, start=1)
        ], kind
        file.unlink()


@pytest.mark.parametrize("stream", [True, False])
def test_arrow_is_read_and_no_compressed_one(tmp_path: Path, stream: bool) -> None:
    table = TABLE.set_column(0, "de", TABLE["de"].combine_chunks().dictionary_encode())
    path = copied(tmp_path, "train.arrow")
    arrow(path, table, stream=stream)
    assert rows(tmp_path) == ROWS
    for compressed in (table, table.drop_columns(["en", "n"])):  # only the dictionary of the second is compressed
        arrow(path, compressed, stream=stream, compression="zstd")
        with pytest.raises(ValueError, match=r"train\.arrow: compressed inside; write it without compression"):
            rows(tmp_path)
    for content in (b"", b"ARROW1", b"ARROW1\0\0" + bytes(100), bytes(5), b"\xff" * 100):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"train\.arrow: no Arrow, or a damaged file|maker/corpus train: empty"):
            rows(tmp_path)


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "json", "txt"])
def test_lines_without_end_are_refused(tmp_path: Path, kind: str, suffix: str) -> None:
    """A file of 11 MB once took all memory."""
    content = b'{"de": "' if kind.startswith("json") else b'de,en\n"' if kind == "csv" else b"de\ten\n"
    copied(tmp_path, f"train.{kind}{suffix}", PACK[suffix](content + b"a" * (8 << 20)))
    with pytest.raises(ValueError, match=rf"train\.{kind}{suffix}: line [12]: longer than 1048576 bytes"):
        rows(tmp_path, {"text": "de"} if kind == "txt" else COLUMNS)


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
@pytest.mark.parametrize(
    ("kind", "head", "line"),
    [("csv", "de,en\n", "a,b\n"), ("tsv", "de\ten\n", "a\tb\n"), ("jsonl", "", '{"de":"a","en":"b"}\n')],
    ids=["csv", "tsv", "jsonl"],
)
def test_bombs_of_rows_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, head: str, line: str, suffix: str
) -> None:
    """A file of 3.7 MB once had 31 million rows."""
    monkeypatch.setitem(read_chunks.__kwdefaults__, "free_bytes", 1 << 20)
    copied(tmp_path, f"train.{kind}{suffix}", PACK[suffix]((head + line * (2_000_000 // len(line))).encode()))
    with pytest.raises(ValueError, match=r"expands beyond 200 times its compressed size"):
        rows(tmp_path)


def test_cells_and_records_over_many_lines_are_bounded(tmp_path: Path) -> None:
    line = "x" * 999 + "\n"
    path = copied(tmp_path, "train.csv", ('de,en\na,b\n"' + line * 2000 + '",b\n').encode())
    with pytest.raises(ValueError, match=r"after row 0: .*train\.csv: record 3: longer than 1048576 characters"):
        rows(tmp_path)
    path.write_text("de,en\na,b\n" + '"a\n",' * 400_000)  # a record of many small cells
    with pytest.raises(ValueError, match=r"train\.csv: record 3: longer than 1048576 characters"):
        rows(tmp_path)
    path.write_text("de,en\na,b,c\n")
    with pytest.raises(ValueError, match=r"train\.csv: record 2: 3 cells where the first has 2"):
        rows(tmp_path)
    path.write_text("de,en\rja,yes\rnein,no\r")
    with pytest.raises(ValueError, match=r"train\.csv: line 1: lines end in CR alone"):
        rows(tmp_path)


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_long_cells_are_refused(tmp_path: Path, suffix: str) -> None:
    long = pa.array(["a", None, "x" * (MAX_LINE_BYTES + 1), "b"])
    for column in (long, long.dictionary_encode(), long.cast(pa.large_string())):
        table = pa.table({"de": column, "en": ["c"] * 4})
        path = copied(tmp_path, f"train.{suffix}")
        if suffix == "parquet":
            pq.write_table(table, path)
        else:
            arrow(path, table)
        with pytest.raises(ValueError, match=rf"train\.{suffix}: record.*'de' is longer than 1048576 bytes; cut it"):
            rows(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.json", '[{"de": "a", "en": "b"}]', r"train\.json: one JSON array; write one object a line"),
        ("train.jsonl", '{"de": ' + "[" * 100_000, r"train\.jsonl: line 1: JSON nested too deep"),
        ("train.jsonl", '{"de": "a", "en": "b"}\n"text"\n', r"train\.jsonl: line 2: no JSON object"),
        ("train.jsonl", '{"de": "a", "en": "b"}\n{"de": ["a"]}\n', "line 2: field 'de' is list and no"),
        ("train.jsonl", '{"de": "a", "en": "\\ud800"}\n', r"train\.jsonl: near record 1: no Unicode text"),
        ("train.jsonl", '{"a": {"b.c": 1}, "de": ["a"], "en": "b"}\n', "field 'de' is list<.*, no text; the texts"),
        ("train.jsonl", "\n\n", "maker/corpus train: empty, without a single row"),
        ("train.csv", "", "maker/corpus train: empty, without a single row"),
    ],
)
def test_unreadable_files_are_an_error(tmp_path: Path, name: str, content: str, message: str) -> None:
    copied(tmp_path, name, content.encode())
    with pytest.raises(ValueError, match=message):
        rows(tmp_path)


@pytest.mark.parametrize("name", ["train[1].jsonl", "train*.jsonl", "train?{a,b}.jsonl", "\x1b[2Jtrain.jsonl"])
def test_names_are_no_patterns(tmp_path: Path, name: str) -> None:
    """Such a name once ended in a traceback."""
    copied(tmp_path, name, b'{"de": "a", "en": "b"}\n')
    assert rows(tmp_path) == [{"de": "a", "en": "b"}]
    copied(tmp_path, "README.md", f"---\nconfigs:\n- data_files: {json.dumps(name)}\n---\n".encode())
    assert rows(tmp_path) == [{"de": "a", "en": "b"}]


_READ = """
import sys
from pathlib import Path
import pyarrow as pa
from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import FileEntry
from pipeline.corpus.readers import open_table
entry = FileEntry(split="train", format="parquet", paths=("a",), pair=LangPair("de", "en"))
try:
    list(open_table([Path(sys.argv[1])], entry, {}).batches)
except ValueError as error:
    print(pa.default_memory_pool().max_memory(), error)
"""


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("store_schema", [False, True])
def test_a_long_text_in_a_dictionary_is_not_written_out(tmp_path: Path, nested: bool, store_schema: bool) -> None:
    """A text of 10 MB once took 2.2 GB before it was refused."""
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 400, pa.int32()), ["x" * (4 << 20)])
    columns = {"de": text, "en": pa.array(["y"] * 400)}
    if nested:
        columns = {"translation": pa.StructArray.from_arrays(list(columns.values()), list(columns))}
    path = tmp_path / "a.parquet"
    options = {"compression": "zstd", "dictionary_pagesize_limit": 1 << 30}
    pq.write_table(pa.table(columns), path, store_schema=store_schema, **options)
    command = [sys.executable, "-c", _READ, str(path)]
    result = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    peak, _, message = result.stdout.partition(" ")
    assert "record" in message
    assert "is longer than 1048576 bytes" in message
    assert int(peak) < 64 << 20


@pytest.mark.parametrize("nested", [False, True])
def test_texts_of_many_groups_and_dictionaries_are_read(tmp_path: Path, nested: bool) -> None:
    """Every group has its own dictionary, and continues with plain texts when the dictionary is full."""
    texts = {
        code: [None if n % 7 == 0 else f"{code} {n // 3 if n < 3000 else n}" for n in range(9000)] for code in COLUMNS
    }
    columns = {code: pa.array(column) for code, column in texts.items()}
    if nested:
        columns = {"translation": pa.StructArray.from_arrays(list(columns.values()), list(columns))}
    path = copied(tmp_path, "train.parquet")
    pq.write_table(pa.table(columns), path, row_group_size=4321, dictionary_pagesize_limit=8000, data_page_size=2000)
    result = rows(tmp_path, {f"{'translation.' if nested else ''}{code}": code for code in texts})
    assert result == [{"de": de, "en": en} for de, en in zip(texts["de"], texts["en"], strict=True)]
