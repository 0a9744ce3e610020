"""Benchmark of reading the same rows from files of every local format."""

import gzip
import json
import lzma
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pyarrow as pa
import pyarrow.parquet as pq

from bench.data.corpus import Text, write_lines
from bench.data.scale import Scale
from pipeline.corpus.manifest import FileEntry
from pipeline.corpus.readers import open_table


def measure(text: Text, scale: Scale, directory: Path) -> Iterator[dict[str, Any]]:
    """Yield a row for each round and format. Seconds are processor time."""
    directory.mkdir(parents=True, exist_ok=True)
    entries = {variant: write(text, directory) for variant, write in WRITERS.items()}
    for number in range(scale.rounds):
        for variant, entry in entries.items():
            began = time.process_time()
            table = open_table([directory / name for name in entry.paths], entry, {})
            rows = sum(batch.num_rows for batch in table.batches)
            yield {
                "section": "reading",
                "text": text.name,
                "variant": variant,
                "threads": 1,
                "round": number,
                "rows": text.train.num_rows,
                "seconds": time.process_time() - began,
                "kept": rows,
                "note": "",
            }


def _tsv(suffix: str) -> Callable[[Text, Path], FileEntry]:
    def write(text: Text, directory: Path) -> FileEntry:
        rows = zip(text.train["src"].to_pylist(), text.train["tgt"].to_pylist(), strict=True)
        content = "".join(f"{src}\t{tgt}\n" for src, tgt in rows).encode()
        path = directory / f"train.tsv{suffix}"
        if suffix == ".zst":
            with pa.output_stream(str(path), compression="zstd") as file:
                file.write(content)
        else:
            compress: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".xz": lzma.compress}
            path.write_bytes(compress.get(suffix, bytes)(content))
        return FileEntry(split="train", format="tsv", paths=(path.name,), pair=text.pair)

    return write


def _multiway(text: Text, directory: Path) -> FileEntry:
    entry = _tsv("")(text, directory)
    content = (directory / entry.paths[0]).read_bytes()
    (directory / "multiway.tsv").write_bytes(f"{text.pair.src}\t{text.pair.tgt}\n".encode() + content)
    return FileEntry(split="train", format="multiway_tsv", paths=("multiway.tsv",))


def _aligned(text: Text, directory: Path) -> FileEntry:
    for side in ("src", "tgt"):
        write_lines(text.train[side], directory / f"aligned.{side}")
    return FileEntry(split="train", format="aligned", paths=("aligned.src", "aligned.tgt"), pair=text.pair)


def _jsonl(text: Text, directory: Path) -> FileEntry:
    with (directory / "train.jsonl").open("w", encoding="utf-8") as file:
        for row in text.train.to_pylist():
            print(json.dumps({text.pair.src: row["src"], text.pair.tgt: row["tgt"]}, ensure_ascii=False), file=file)
    return FileEntry(split="train", format="jsonl", paths=("train.jsonl",), pair=text.pair)


def _parquet(text: Text, directory: Path) -> FileEntry:
    pq.write_table(text.train.rename_columns([text.pair.src, text.pair.tgt]), directory / "train.parquet")
    return FileEntry(split="train", format="parquet", paths=("train.parquet",), pair=text.pair)


def _tmx(text: Text, directory: Path) -> FileEntry:
    with (directory / "train.tmx").open("w", encoding="utf-8") as file:
        print('<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4"><header/><body>', file=file)
        for row in text.train.to_pylist():
            sides = ((text.pair.src, row["src"]), (text.pair.tgt, row["tgt"]))
            units = (f'<tuv xml:lang="{code}"><seg>{escape(side)}</seg></tuv>' for code, side in sides)
            print(f"<tu>{''.join(units)}</tu>", file=file)
        print("</body></tmx>", file=file)
    return FileEntry(split="train", format="tmx", paths=("train.tmx",), pair=text.pair)


WRITERS: dict[str, Callable[[Text, Path], FileEntry]] = {
    "tsv": _tsv(""),
    "tsv.gz": _tsv(".gz"),
    "tsv.xz": _tsv(".xz"),
    "tsv.zst": _tsv(".zst"),
    "multiway_tsv": _multiway,
    "aligned": _aligned,
    "tmx": _tmx,
    "jsonl": _jsonl,
    "parquet": _parquet,
}
