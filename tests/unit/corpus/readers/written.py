"""Small files of every format, and a function that reads them, for the tests of the readers."""

import gzip
import io
import json
import lzma
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import FileEntry
from pipeline.corpus.readers import open_table
from pipeline.corpus.tables import BATCH_ROWS

PAIR = LangPair("de", "en")
Row = tuple[str | None, ...]


def rows_of(
    paths: Path | Sequence[Path],
    format_: str,
    *,
    pair: LangPair | None = PAIR,
    columns: Mapping[str, str] | None = None,
    renames: Mapping[str, str] | None = None,
) -> list[Row]:
    """Return the rows of a reader, with a text or None for each column, and check the promises of `Table`."""
    paths = [paths] if isinstance(paths, Path) else list(paths)
    pair = None if format_ == "multiway_tsv" else pair
    entry = FileEntry(
        split="train", format=format_, paths=tuple(p.name for p in paths), pair=pair, columns=columns or {}
    )
    table = open_table(paths, entry, renames or {})
    rows: list[Row] = []
    for batch in table.batches:
        assert batch.schema == pa.schema([(column, pa.string()) for column in table.columns])
        assert 0 < batch.num_rows <= BATCH_ROWS
        batch.validate(full=True)
        rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return rows


def tsv(rows: Sequence[Sequence[str]]) -> bytes:
    return "".join("\t".join(row) + "\n" for row in rows).encode()


def multiway(rows: Sequence[Sequence[str]]) -> bytes:
    return tsv([("de", "en"), *rows])


def tmx(rows: Sequence[Sequence[str]], head: str = '<?xml version="1.0" encoding="UTF-8"?>\n') -> bytes:
    units = "".join(
        "".join(
            f'<tuv xml:lang="{code}"><seg>{escape(text)}</seg></tuv>'
            for code, text in zip(("de", "en"), row, strict=True)
        ).join(("<tu>", "</tu>\n"))
        for row in rows
    )
    return f'{head}<tmx version="1.4"><header/><body>\n{units}</body></tmx>\n'.encode()


def jsonl(rows: Sequence[Sequence[str]]) -> bytes:
    return "".join(
        json.dumps({"translation": dict(zip(("de", "en"), row, strict=True))}) + "\n" for row in rows
    ).encode()


def parquet(rows: Sequence[Sequence[str]]) -> bytes:
    file = io.BytesIO()
    columns = zip(*rows, strict=True) if rows else ([], [])
    arrays = [pa.array(column, pa.string()) for column in columns]
    pq.write_table(pa.Table.from_arrays(arrays, names=["de", "en"]), file, compression="zstd")
    return file.getvalue()


def zstd(data: bytes) -> bytes:
    file = pa.BufferOutputStream()
    with pa.CompressedOutputStream(file, "zstd") as stream:
        stream.write(data)
    return bytes(file.getvalue().to_pybytes())


def xz(data: bytes) -> bytes:
    return lzma.compress(data, preset=0)


FORMATS = {"tsv": tsv, "multiway_tsv": multiway, "tmx": tmx, "jsonl": jsonl, "parquet": parquet}
COMPRESSIONS = {"": bytes, ".gz": gzip.compress, ".xz": xz, ".zst": zstd}
