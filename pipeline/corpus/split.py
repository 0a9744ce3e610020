"""Dev and test sets that are split off training rows, by whole documents, for pairs that have none."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.corpus.cleaning.characters import mix
from pipeline.corpus.cleaning.codepoints import Bools, Hashes, Texts
from pipeline.corpus.config import SplitConfig
from pipeline.corpus.fetched import DOCUMENT, FetchedTable, write_tables
from pipeline.corpus.tables import Table, read_batches, write_table

_log = logging.getLogger(__name__)


def split_table(table: FetchedTable, config: SplitConfig, missing: Mapping[str, bool], out: Path) -> None:
    """Write `train.parquet`, the missing sets of `dev.parquet` and `test.parquet`, and `tables.json` to `out`.

    Documents are taken in an order that depends on the seed and on their names alone (without names: their positions).
    A document goes to the first set that still has room for all of its rows.

    missing: by split, whether the pairs of the table lack it.
    Raises ValueError if no document is small enough for a set.
    """
    documents = np.concatenate([np.zeros(0, np.uint64), *_documents(table, config)])
    sizes = {name: min(getattr(config, name), int(config.max_share * table.rows)) for name in missing if missing[name]}
    chosen = _choose(documents, sizes, config.seed)
    for name, documents_of_split in chosen.items():
        if not len(documents_of_split):
            named = DOCUMENT in table.columns or sizes[name] == 0
            remedy = "raise corpus.split.max_share" if named else f"set corpus.split.block={sizes[name]}"
            raise ValueError(
                f"source {table.source} ({', '.join(table.codes)}) has no {name} set, and none of its documents is as "
                f"small as the {sizes[name]} rows of it that may be taken; add a {name} set to the corpus, or {remedy}"
            )
    held_out = {name: np.isin(documents, picked) for name, picked in chosen.items()}
    masks = {"train": ~np.logical_or.reduce(list(held_out.values())), **held_out}
    tables = []
    for name, mask in masks.items():
        path = out / f"{name}.parquet"
        info = write_table(Table(columns=table.columns, batches=_chosen_rows(table, mask)), path)
        tables.append(replace(table, path=path, split=name, rows=info.rows, filled=info.filled))
    write_tables(tables, out)
    counts = ", ".join(f"{part.split} {part.rows}" for part in tables)
    by = "documents" if DOCUMENT in table.columns else f"blocks of {config.block} rows"
    codes, none = ", ".join(table.codes), " and ".join(sizes)
    _log.info("source %s (%s) has no %s set; split off by %s: %s", table.source, codes, none, by, counts)


def _documents(table: FetchedTable, config: SplitConfig) -> Iterator[Hashes]:
    """Yield the hash of the document of each row."""
    if DOCUMENT in table.columns:
        for batch in read_batches(table.path, (DOCUMENT,)):
            yield Texts.normalized(batch.column(0).fill_null("")).hashes
        return
    for start in range(0, table.rows, config.block):
        rows = min(config.block, table.rows - start)
        yield mix(np.full(rows, start // config.block + 1, dtype=np.uint64))


def _choose(documents: Hashes, sizes: Mapping[str, int], seed: int) -> dict[str, Hashes]:
    """Return the documents of each split, with at most as many rows as its size."""
    names, counts = np.unique(documents, return_counts=True)
    order = np.argsort(mix(names + np.uint64(seed)), kind="stable")
    chosen: dict[str, list[int]] = {split: [] for split in sizes}
    left = dict(sizes)
    for index in map(int, order):  # not as a list, because every row may be a document
        split = next((name for name, rows in left.items() if counts[index] <= rows), None)
        if split is not None:
            chosen[split].append(index)
            left[split] -= int(counts[index])
        if not any(left.values()):
            break
    return {split: names[indices] for split, indices in chosen.items()}


def _chosen_rows(table: FetchedTable, mask: Bools) -> Iterator[pa.RecordBatch]:
    start = 0
    for batch in read_batches(table.path, table.columns):
        yield batch.filter(pa.array(mask[start : start + batch.num_rows]))
        start += batch.num_rows
