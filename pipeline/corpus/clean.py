"""Normalised and filtered rows of one pair: shards judge rows by themselves, their merge removes what repeats.

A shard is a range of row groups that can be cleaned anywhere; any number of shards gives the same files.
"""

import gzip
import json
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.corpus.bitext import SCHEMA, BitextWriter, iter_bitext, write_bitext
from pipeline.corpus.characters import mix
from pipeline.corpus.codepoints import Bools, Texts
from pipeline.corpus.config import CorpusConfig, Rules
from pipeline.corpus.duplicates import KeyWriter, find_duplicates, num_partitions
from pipeline.corpus.fetched import FetchedTable
from pipeline.corpus.held_out import HeldOut
from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import SPLITS
from pipeline.corpus.min_hash import signatures
from pipeline.corpus.near_duplicates import SignatureWriter, near_duplicates
from pipeline.corpus.rules import EMPTY, LANGUAGE, SCRIPT, judge, not_judged, row_rules
from pipeline.corpus.tables import group_rows, read_batches, small_batches
from pipeline.corpus.tally import Tally
from pipeline.stage import remove_tree, write_atomically
from pipeline.tasks import run_once

FUNNEL = "funnel.json"
REMOVED = "removed.tsv.gz"
FEW_ROWS = 100
HELD_OUT, DUPLICATE, NEAR_DUPLICATE = "held_out", "duplicate", "near_duplicate"
_SHARDS, _NEAR = "shards", "near"
_ADD_ROWS = "choose another pair, or add rows with both languages to the corpus"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A share of the training rows of a pair. parts: number of the source, path of a table, row groups of it."""

    pair: LangPair
    rules: Rules
    parts: list[tuple[int, str, list[int]]]
    held_out: str | None
    partitions: int
    keep_removed: bool
    out: str


RunShards = Callable[[Callable[[Shard], Tally], Sequence[Shard]], list[Tally]]


def one_by_one(function: Callable[[Shard], Tally], shards: Sequence[Shard]) -> list[Tally]:
    """Run shards in this process."""
    return [function(shard) for shard in shards]


def clean(
    config: CorpusConfig,
    pair: LangPair,
    *,
    tables: Sequence[FetchedTable],
    held_out: Path | None,
    out: Path,
    shard_rows: int = 1_000_000,
    run_shards: RunShards = one_by_one,
) -> None:
    """Write `<split>.arrow` (columns src, tgt) and `funnel.json` of one pair to `out`, and what was removed if asked.

    tables: those with both languages; dev and test only lose rows with an empty side. held_out: directory of the index
    of all dev and test texts, needed for `rules.held_out`. shard_rows: about so many rows are cleaned by one task.
    Raises ValueError if a split has no rows, before or after cleaning. What was done before an interruption is kept.
    """
    if (out / FUNNEL).exists():  # all was done but, it may be, the removal of the shards
        _remove_shards(out)
        return
    held = {
        split: _write_held_out(pair, [table for table in tables if table.split == split], split, out)
        for split in SPLITS[1:]
    }
    _check(pair, held)  # before the hours of cleaning
    train = [table for table in tables if table.split == "train"]
    shards = _plan(config, pair, train, held_out, out / _SHARDS, shard_rows)
    tallies = {"train": _merge(shards, run_shards(clean_shard, shards), config.keep_removed, out), **held}
    _check(pair, tallies)
    content: dict[str, Any] = {"pair": pair.name}
    for split, tally in tallies.items():
        removed = {
            rule: tally.removed[rule] for rule in (_rule_names(config.rules, pair) if split == "train" else [EMPTY])
        }
        counts = {"read": tally.read.total(), "changed": tally.changed, "removed": removed}
        content[split] = {**counts, "kept": tally.kept.total()}
    tally = tallies["train"]
    content["examples"] = tally.examples_of(range(len(train)))
    content["sources"] = [
        {**table.about(), "read": tally.read[at], "kept": tally.kept[at], "examples": tally.examples_of([at])}
        for at, table in enumerate(train)
    ]
    content["not_judged"] = not_judged(config.rules, pair)
    for reason in content["not_judged"]:
        _log.warning("pair %s: not checked: %s", pair, reason)
    write_atomically(out / FUNNEL, json.dumps(content, ensure_ascii=False, indent=1) + "\n")
    _remove_shards(out)


def funnel(directory: Path) -> dict[str, Any]:
    """Content of `funnel.json`: pair; per split read, changed by normalisation, removed by rule and kept; examples by
    rule; sources, each with name, tag, licence, citation, read, kept and examples, in the order of the training rows;
    not_judged: why a rule does not apply to a side."""
    content: dict[str, Any] = json.loads((directory / FUNNEL).read_text(encoding="utf-8"))
    return content


def clean_shard(shard: Shard) -> Tally:
    """Normalise the rows of a shard and apply the rules that judge a row by itself; once done, it is not done again.

    Writes the rows that are left to `rows.arrow`, and the hash of each for the search for duplicates.
    """
    return Tally.from_json(run_once(Path(shard.out), lambda out: _clean_shard(shard, out).to_json()))


def _clean_shard(shard: Shard, out: Path) -> Tally:
    rules = row_rules(shard.rules, shard.pair, HeldOut.load(Path(shard.held_out)) if shard.held_out else None)
    names, tally = list(rules), Tally()
    with ExitStack() as stack:
        writer = stack.enter_context(BitextWriter(out / "rows.arrow"))
        keys = stack.enter_context(KeyWriter(out, shard.partitions))
        near = shard.rules.near_duplicates
        likeness = stack.enter_context(SignatureWriter(out / _NEAR, near)) if near else None
        removed = stack.enter_context((out / "removed.tsv").open("wb")) if shard.keep_removed else None
        for source, path, groups in shard.parts:
            for src, tgt in _texts(tally, source, Path(path), shard.pair, groups):
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


def _texts(
    tally: Tally, source: int, path: Path, pair: LangPair, groups: Sequence[int] | None = None
) -> Iterator[tuple[Texts, Texts]]:
    """Both sides of the rows that have both, normalised, by few rows, and counted as read."""
    for batch in read_batches(path, (pair.src, pair.tgt), groups):
        for part in small_batches(batch.drop_null()):
            src, tgt = (Texts.normalized(part.column(side)) for side in (0, 1))
            changed = pc.or_(pc.not_equal(part.column(0), src.array), pc.not_equal(part.column(1), tgt.array))
            tally.read[source] += part.num_rows
            tally.changed += changed.true_count
            yield src, tgt


def _plan(
    config: CorpusConfig,
    pair: LangPair,
    tables: Sequence[FetchedTable],
    held_out: Path | None,
    directory: Path,
    shard_rows: int,
) -> list[Shard]:
    if config.rules.held_out is not None and held_out is None:
        raise ValueError("corpus.rules.held_out needs the index of the dev and test texts; set it to null without one")
    ranges: list[tuple[str, list[tuple[int, str, list[int]]]]] = []
    at = room = 0
    for source, table in enumerate(tables):
        for group, rows in enumerate(group_rows(table.path)):
            if room <= 0:
                ranges.append((f"from-{at}-by-{shard_rows}", []))
                room = shard_rows
            at, room = at + rows, room - rows
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
            partitions=num_partitions(at),
            keep_removed=config.keep_removed,
            out=str(directory / name),
        )
        for name, parts in ranges
    ]


def _merge(shards: Sequence[Shard], tallies: Sequence[Tally], keep_removed: bool, out: Path) -> Tally:
    """Write the rows of all shards that repeat none before them."""
    total = Tally()
    for tally in tallies:
        total.add(tally)
    if not shards:
        write_bitext(out / "train.arrow", [])
        return total
    repeats = _repeats(shards, [tally.kept.total() for tally in tallies])
    with ExitStack() as stack:
        writer = stack.enter_context(BitextWriter(out / "train.arrow"))
        removed = stack.enter_context(gzip.GzipFile(out / REMOVED, "wb", mtime=0)) if keep_removed else None
        if removed is not None:
            for shard in shards:
                with Path(shard.out, "removed.tsv").open("rb") as file:
                    shutil.copyfileobj(file, removed)
        counts = [(source, tally.kept[source]) for tally in tallies for source in sorted(tally.kept)]
        owners = np.repeat(*np.array(counts, dtype=np.int64).reshape(-1, 2).T).astype(np.int16)
        kept = np.ones(len(owners), dtype=bool)
        for rule, repeated in repeats.items():  # one after the other: batches depend on shards, the order must not
            kept &= ~repeated
            if repeated.any():
                _remove(total, rule, _rows(shards, repeated), owners[repeated], removed)
        for batch in _rows(shards, kept):
            writer.write(batch)
    return total


def _remove(
    total: Tally, rule: str, batches: Iterable[pa.RecordBatch], owners: Any, removed: gzip.GzipFile | None
) -> None:
    """Take rows that were kept so far off each source. owners: source of each of the rows, never falling."""
    at = 0
    for batch in batches:
        part = owners[at : at + batch.num_rows]
        at += batch.num_rows
        for source, rows in zip(*np.unique(part, return_counts=True), strict=True):
            total.kept[int(source)] -= int(rows)
            total.remove(rule, batch.filter(pa.array(part == source)), int(source), removed)


def _rows(shards: Sequence[Shard], chosen: Bools) -> Iterator[pa.RecordBatch]:
    """Chosen rows of all shards, in order."""
    at = 0
    for shard in shards:
        for batch in iter_bitext(Path(shard.out), "rows"):
            mask = chosen[at : at + batch.num_rows]
            at += batch.num_rows
            yield batch if mask.all() else batch.filter(pa.array(mask))


def _repeats(shards: Sequence[Shard], rows: Sequence[int]) -> dict[str, Bools]:
    """By rule, which of the rows that the shards kept are to go because an earlier one is like them."""
    rules, found = shards[0].rules, {}
    if rules.duplicates:
        parts = [(Path(shard.out), n) for shard, n in zip(shards, rows, strict=True)]
        found[DUPLICATE] = find_duplicates(parts, shards[0].partitions)
    if rules.near_duplicates is not None:
        alike = np.zeros(sum(rows), dtype=bool)
        alike[near_duplicates([Path(shard.out, _NEAR) for shard in shards], rules.near_duplicates)] = True
        found[NEAR_DUPLICATE] = alike & ~found[DUPLICATE] if DUPLICATE in found else alike
    return found


def _remove_shards(out: Path) -> None:
    for directory in out.glob(_SHARDS):
        remove_tree(directory)


def _rule_names(rules: Rules, pair: LangPair) -> list[str]:
    """Every rule that is on, in the order of the funnel."""
    names = [name for name in row_rules(rules, pair, None) if name != LANGUAGE]
    later = {HELD_OUT: rules.held_out, LANGUAGE: rules.language, DUPLICATE: rules.duplicates}
    return [*names, *(name for name, rule in {**later, NEAR_DUPLICATE: rules.near_duplicates}.items() if rule)]


def _write_held_out(pair: LangPair, tables: Sequence[FetchedTable], split: str, out: Path) -> Tally:
    tally = Tally()
    with BitextWriter(out / f"{split}.arrow") as writer:
        for source, table in enumerate(tables):
            for src, tgt in _texts(tally, source, table.path, pair):
                rows = pa.RecordBatch.from_arrays([src.array, tgt.array], schema=SCHEMA)
                empty = (src.lengths == 0) | (tgt.lengths == 0)
                tally.remove(EMPTY, rows.filter(pa.array(empty)), source, None)
                tally.kept[source] += int((~empty).sum())
                writer.write(rows.filter(pa.array(~empty)))
    return tally


def _check(pair: LangPair, tallies: dict[str, Tally]) -> None:
    """Of some splits, that they have rows; of all, what is worth a warning."""
    counts = ", ".join(f"{name} {tally.kept.total()} of {tally.read.total()}" for name, tally in tallies.items())
    for name, tally in tallies.items():
        if tally.kept.total() == 0:
            what = {"train": "training"}.get(name, name)
            removed = ", ".join(f"{rule} {count}" for rule, count in tally.removed.items() if count)
            reason = f"; the rules removed them all ({removed})" if removed else ""
            remedy = "correct the rows, or the rules below corpus.rules (docs/cleaning.md)" if removed else _ADD_ROWS
            if name != "train":
                remedy += f", or raise corpus.split.{name} and corpus.split.max_share if it is split off"
            raise ValueError(f"pair {pair}: no {what} rows (kept of read: {counts}){reason}; {remedy}")
    if "train" not in tallies:
        return
    for name, tally in tallies.items():
        if tally.kept.total() < FEW_ROWS:
            _log.warning("pair %s: only %d %s rows (kept of read: %s)", pair, tally.kept.total(), name, counts)
    train = tallies["train"]
    for rule, count in train.removed.items():
        if 2 * count > train.read.total():
            swapped = "; are its sides swapped, or in another language?" if rule in (LANGUAGE, SCRIPT) else ""
            _log.warning("pair %s: rule %s removed %d of %d rows%s", pair, rule, count, train.read.total(), swapped)
    leaked = train.removed[HELD_OUT]
    if leaked:
        _log.warning("pair %s: %d training rows share text with a dev or test set and are removed", pair, leaked)
