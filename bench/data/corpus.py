"""The text of the benchmark, fetched as for training, and the same lines as plain files for peers."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from bench.data.pairs import many_pairs, short_sentences
from pipeline.config import ROOT
from pipeline.corpus.config import CorpusConfig
from pipeline.corpus.languages import LangPair, normalize_code, split_pair
from pipeline.corpus.manifest import FileEntry
from pipeline.corpus.readers import open_table
from pipeline.dag.cleaning import prepare_corpus
from pipeline.dag.corpus import Corpus
from pipeline.dag.store import Store
from pipeline.tasks import DataConfig

SAMPLE = ROOT / "data" / "sample"
_HELD_OUT = {"dev": 200, "test": 300}


@dataclass(frozen=True, kw_only=True)
class Text:
    """Rows (src, tgt) of one pair.

    held_out: the dev and test rows.
    mixture: files of several pairs, which the section on packing takes in place of this pair.
    """

    name: str
    pair: LangPair
    train: pa.Table
    held_out: dict[str, pa.Table]
    mixture: tuple[Path, ...] = ()

    def head(self, rows: int) -> "Text":
        return replace(self, train=self.train.slice(0, rows))


def read_text(path: Path | None, rows: int) -> Text:
    """Read the text of a pair. Its first rows are dev and test rows.

    path: a TSV file that is named after its pair; None makes rows from the sample.
    rows: the most training rows.
    """
    if path is None:
        sentences = short_sentences(SAMPLE / "train.tsv", "de", "en")
        held_out = {split: short_sentences(SAMPLE / f"{split}.tsv", "de", "en") for split in _HELD_OUT}
        return Text(
            name=f"sample, {rows} pairs",
            pair=LangPair("de", "en"),
            train=pa.Table.from_batches(many_pairs(sentences, rows)),
            held_out={split: pa.Table.from_batches([batch]) for split, batch in held_out.items()},
        )
    readings = split_pair(path.name.split(".")[0])
    if len(readings) != 1:
        raise ValueError(f"{path}: the name says no pair; name it as de-en.tsv.xz")
    pair = LangPair(*map(normalize_code, readings[0]))
    entry = FileEntry(split="train", format="tsv", paths=(path.name,), columns={"0": pair.src, "1": pair.tgt})
    table = pa.Table.from_batches(_first(open_table([path], entry, {}).batches, rows + sum(_HELD_OUT.values())))
    table = table.rename_columns(["src", "tgt"]).combine_chunks()
    held_out, start = {}, 0
    for split, count in _HELD_OUT.items():
        held_out[split] = table.slice(start, count)
        start += count
    return Text(name=path.name, pair=pair, train=table.slice(start), held_out=held_out)


def fetched(text: Text, directory: Path) -> tuple[CorpusConfig, Corpus]:
    """Fetch the text as a corpus of its own, up to the stage before cleaning. Its plain files stay in the directory."""
    files = directory / "files"
    files.mkdir(parents=True)
    for split, table in {"train": text.train, **text.held_out}.items():
        for code, side in ((text.pair.src, "src"), (text.pair.tgt, "tgt")):
            write_lines(table[side], files / f"{split}.{text.pair.src}-{text.pair.tgt}.{code}")
    config = CorpusConfig(path=str(files))
    return config, prepare_corpus(config, [text.pair.name], Store(directory / "artifacts"), DataConfig())


def write_lines(column: pa.ChunkedArray, path: Path) -> None:
    """Write one text a line."""
    with path.open("w", encoding="utf-8") as file:
        for chunk in column.chunks:
            file.writelines(pc.binary_join_element_wise(chunk, "", "\n").to_pylist())


def _first(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.slice(0, rows)
        rows -= batch.num_rows
        if rows <= 0:
            return
