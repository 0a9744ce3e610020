"""Shards of a pair's training rows: ranges of row groups whose rows are normalised and judged one by one."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.corpus.bitext import SCHEMA, BitextWriter
from pipeline.corpus.cleaning.characters import mix
from pipeline.corpus.cleaning.codepoints import Texts
from pipeline.corpus.cleaning.duplicates import KeyWriter, num_partitions
from pipeline.corpus.cleaning.held_out import HeldOut
from pipeline.corpus.cleaning.min_hash import signatures
from pipeline.corpus.cleaning.near_duplicates import SignatureWriter
from pipeline.corpus.cleaning.rules import judge, row_rules
from pipeline.corpus.cleaning.tally import Tally
from pipeline.corpus.config import CorpusConfig, Rules
from pipeline.corpus.fetched import FetchedTable
from pipeline.corpus.languages import LangPair
from pipeline.corpus.tables import group_rows, read_batches, small_batches
from pipeline.tasks import run_once

ROWS, REMOVED_ROWS, NEAR = (
    "rows",
    "removed.tsv",
    "near",
)  # files of a shard: rows.arrow, and the others if they are needed


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A share of the training rows of a pair.

    parts: number of the source, path of its table, and row groups of the table.
    held_out: directory of the index of dev and test texts, None if the rule is off.
    partitions: number of files of hashes in which duplicates are searched.
    out: directory of the results.
    """

    pair: LangPair
    rules: Rules
    parts: list[tuple[int, str, list[int]]]
    held_out: str | None
    partitions: int
    keep_removed: bool
    out: str


def plan_shards(
    config: CorpusConfig,
    pair: LangPair,
    tables: Sequence[FetchedTable],
    held_out: Path | None,
    directory: Path,
    shard_rows: int,
) -> list[Shard]:
    """Cut the training rows of some tables into shards of about `shard_rows` rows, each with its own directory."""
    if config.rules.held_out is not None and held_out is None:
        raise ValueError("corpus.rules.held_out needs the index of the dev and test texts; set it to null without one")
    ranges: list[tuple[str, list[tuple[int, str, list[int]]]]] = []
    start = room = 0
    for source, table in enumerate(tables):
        for group, rows in enumerate(group_rows(table.path)):
            if room <= 0:
                ranges.append((f"from-{start}-by-{shard_rows}", []))
                room = shard_rows
            start, room = start + rows, room - rows
            parts = ranges[-1][1]
            if not parts or parts[-1][0] != source:
                parts.append((source, str(table.path), []))
            parts[-1][2].append(group)
    return [
        Shard(
            pair=pair,
            rules=config.rules,
            parts=parts,
            held_out=str(held_out) if config.rules.held_out is not None else None,
            partitions=num_partitions(start),
            keep_removed=config.keep_removed,
            out=str(directory / name),
        )
        for name, parts in ranges
    ]


def clean_shard(shard: Shard) -> Tally:
    """Normalise the rows of a shard, apply the rules that judge single rows, and count. It runs once for a shard.

    The rows that are left are in `rows.arrow`, and their hashes beside it, for the search for duplicates.
    """
    return Tally.from_json(run_once(Path(shard.out), lambda out: _clean_shard(shard, out).to_json()))


def _clean_shard(shard: Shard, out: Path) -> Tally:
    rules = row_rules(shard.rules, shard.pair, HeldOut.load(Path(shard.held_out)) if shard.held_out else None)
    names, tally = list(rules), Tally()
    with ExitStack() as stack:
        writer = stack.enter_context(BitextWriter(out / f"{ROWS}.arrow"))
        keys = stack.enter_context(KeyWriter(out, shard.partitions))
        near = shard.rules.near_duplicates
        likeness = stack.enter_context(SignatureWriter(out / NEAR, near)) if near else None
        removed = stack.enter_context((out / REMOVED_ROWS).open("wb")) if shard.keep_removed else None
        for source, path, groups in shard.parts:
            for src, tgt in read_texts(tally, source, Path(path), shard.pair, groups):
                verdict = judge(rules, src, tgt)
                rows = pa.RecordBatch.from_arrays([src.array, tgt.array], schema=SCHEMA)
                for number in np.unique(verdict[verdict >= 0]):
                    tally.remove(names[number], rows.filter(pa.array(verdict == number)), source, removed)
                left = verdict < 0
                tally.kept[source] += int(left.sum())
                writer.write(rows.filter(pa.array(left)))
                keys.write((mix(src.hashes) + tgt.hashes)[left])
                if near is not None and likeness is not None:
                    likeness.add(signatures(src.folded, tgt.folded, near)[left])
    return tally


def read_texts(
    tally: Tally, source: int, path: Path, pair: LangPair, groups: Sequence[int] | None = None
) -> Iterator[tuple[Texts, Texts]]:
    """Yield the two normalised sides of the rows of a table that have both, some rows at a time, and count them."""
    for batch in read_batches(path, (pair.src, pair.tgt), groups):
        for part in small_batches(batch.drop_null()):
            src, tgt = (Texts.normalized(part.column(side)) for side in (0, 1))
            changed = pc.or_(pc.not_equal(part.column(0), src.array), pc.not_equal(part.column(1), tgt.array))
            tally.read[source] += part.num_rows
            tally.changed += changed.true_count
            yield src, tgt
