"""Cleaning of one pair: shards normalise and judge rows one by one, then their merge removes repeated rows.

A shard is a range of row groups, which any process can clean. The number of shards does not affect the result.
"""

import gzip
import json
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.corpus.bitext import SCHEMA, BitextWriter, iter_bitext, write_bitext
from pipeline.corpus.cleaning.codepoints import Bools
from pipeline.corpus.cleaning.duplicates import find_duplicates
from pipeline.corpus.cleaning.held_out import HeldOut
from pipeline.corpus.cleaning.near_duplicates import near_duplicates
from pipeline.corpus.cleaning.rules import EMPTY, HELD_OUT, LANGUAGE, SCRIPT, not_judged, row_rules
from pipeline.corpus.cleaning.shard import NEAR, REMOVED_ROWS, ROWS, Shard, clean_shard, plan_shards, read_texts
from pipeline.corpus.cleaning.tally import Tally
from pipeline.corpus.config import CorpusConfig, Rules
from pipeline.corpus.fetched import FetchedTable
from pipeline.corpus.funnel import FUNNEL
from pipeline.corpus.languages import LangPair
from pipeline.files import remove_tree, sync_tree, write_atomically
from pipeline.tasks import in_turn

REMOVED = "removed.tsv.gz"
FEW_ROWS = 100
DUPLICATE, NEAR_DUPLICATE = "duplicate", "near_duplicate"
_SHARDS = "shards"
_ADD_ROWS = "choose another pair, or add rows with both languages to the corpus"

_log = logging.getLogger(__name__)


RunShards = Callable[[Callable[[Shard], Tally], Sequence[Shard]], list[Tally]]


def clean(
    config: CorpusConfig,
    pair: LangPair,
    *,
    tables: Sequence[FetchedTable],
    held_out: Path | None,
    test_texts: Path | None = None,
    out: Path,
    shard_rows: int = 1_000_000,
    run_shards: RunShards = in_turn,
) -> None:
    """Write `<split>.arrow` (columns src, tgt) and `funnel.json` of one pair to `out`.

    Test sets lose rows with an empty side alone. Dev sets also lose rows that share text with a test set.

    config: its `keep_removed` also writes the removed training rows.
    tables: tables with both languages of the pair.
    held_out: directory of the index of all dev and test texts, needed for `rules.held_out`.
    test_texts: directory of the index of all test texts, needed for the same rule.
    shard_rows: about the number of rows that one task cleans.
    run_shards: calls a function on every shard.
    Raises ValueError if a split has no rows, before or after cleaning. An interrupted call continues in the same `out`.
    """
    if (out / FUNNEL).exists():  # only the shards may be left to remove
        _remove_shards(out)
        return
    leaks = HeldOut.load(test_texts) if config.rules.held_out and test_texts else None
    held_out_tallies = {
        split: _write_held_out(pair, [table for table in tables if table.split == split], split, index, out)
        for split, index in (("dev", leaks), ("test", None))
    }
    _check(pair, held_out_tallies)  # before cleaning, which may take hours
    train = [table for table in tables if table.split == "train"]
    shards = plan_shards(config, pair, train, held_out, out / _SHARDS, shard_rows)
    tallies = {"train": _merge(shards, run_shards(clean_shard, shards), config.keep_removed, out), **held_out_tallies}
    _check(pair, tallies)
    content: dict[str, Any] = {"pair": pair.name}
    for split, tally in tallies.items():
        # A dev set that loses nothing keeps the record of 0.2.2, so that later stages of an old run are not repeated.
        rules = (
            _rule_names(config.rules, pair) if split == "train" else [EMPTY, *(HELD_OUT,) * (HELD_OUT in tally.removed)]
        )
        removed = {rule: tally.removed[rule] for rule in rules}
        counts = {"read": tally.read.total(), "changed": tally.changed, "removed": removed}
        content[split] = {**counts, "kept": tally.kept.total()}
    tally = tallies["train"]
    content["examples"] = tally.examples_of(range(len(train)))
    content["sources"] = [
        {
            **table.about(),
            "read": tally.read[number],
            "kept": tally.kept[number],
            "examples": tally.examples_of([number]),
        }
        for number, table in enumerate(train)
    ]
    content["not_judged"] = not_judged(config.rules, pair)
    for reason in content["not_judged"]:
        _log.warning("pair %s: not checked: %s", pair, reason)
    for path in out.iterdir():
        if path.name != _SHARDS:
            sync_tree(path)
    write_atomically(out / FUNNEL, json.dumps(content, ensure_ascii=False, indent=1) + "\n")
    _remove_shards(out)


def write_test(pair: LangPair, *, tables: Sequence[FetchedTable], out: Path) -> None:
    """Write `test.arrow` alone, as `clean` writes it, but it may have no rows."""
    _write_held_out(pair, tables, "test", None, out)


def _merge(shards: Sequence[Shard], tallies: Sequence[Tally], keep_removed: bool, out: Path) -> Tally:
    """Write the rows of all shards that do not repeat an earlier row, and count them."""
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
                with Path(shard.out, REMOVED_ROWS).open("rb") as file:
                    shutil.copyfileobj(file, removed)
        counts = [(source, tally.kept[source]) for tally in tallies for source in sorted(tally.kept)]
        owners = np.repeat(*np.array(counts, dtype=np.int64).reshape(-1, 2).T).astype(np.int16)
        kept = np.ones(len(owners), dtype=bool)
        for (
            rule,
            repeated,
        ) in repeats.items():  # rule by rule, so that the order of removed rows does not depend on the shards
            kept &= ~repeated
            if repeated.any():
                _remove(total, rule, _rows(shards, repeated), owners[repeated], removed)
        for batch in _rows(shards, kept):
            writer.write(batch)
    return total


def _remove(
    total: Tally, rule: str, batches: Iterable[pa.RecordBatch], owners: Any, removed: gzip.GzipFile | None
) -> None:
    """Count rows as removed that their shards have kept. owners: source of each row, in ascending order."""
    start = 0
    for batch in batches:
        part = owners[start : start + batch.num_rows]
        start += batch.num_rows
        for source, rows in zip(*np.unique(part, return_counts=True), strict=True):
            total.kept[int(source)] -= int(rows)
            total.remove(rule, batch.filter(pa.array(part == source)), int(source), removed)


def _rows(shards: Sequence[Shard], chosen: Bools) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all shards where `chosen` is true, in order."""
    start = 0
    for shard in shards:
        for batch in iter_bitext(Path(shard.out), ROWS):
            mask = chosen[start : start + batch.num_rows]
            start += batch.num_rows
            yield batch if mask.all() else batch.filter(pa.array(mask))


def _repeats(shards: Sequence[Shard], rows: Sequence[int]) -> dict[str, Bools]:
    """Return a mask by rule: rows that the shards kept, but that are like an earlier one."""
    rules, masks = shards[0].rules, {}
    if rules.duplicates:
        parts = [(Path(shard.out), n) for shard, n in zip(shards, rows, strict=True)]
        masks[DUPLICATE] = find_duplicates(parts, shards[0].partitions)
    if rules.near_duplicates is not None:
        alike = np.zeros(sum(rows), dtype=bool)
        alike[near_duplicates([Path(shard.out, NEAR) for shard in shards], rules.near_duplicates)] = True
        masks[NEAR_DUPLICATE] = alike & ~masks[DUPLICATE] if DUPLICATE in masks else alike
    return masks


def _remove_shards(out: Path) -> None:
    if (out / _SHARDS).exists():
        remove_tree(out / _SHARDS)


def _rule_names(rules: Rules, pair: LangPair) -> list[str]:
    """Return the rules that are on, in the order in which they apply. Those for repeated rows apply to all shards."""
    repeats = {DUPLICATE: rules.duplicates, NEAR_DUPLICATE: rules.near_duplicates}
    return [*row_rules(rules, pair, None), *(name for name, rule in repeats.items() if rule)]


def _write_held_out(
    pair: LangPair, tables: Sequence[FetchedTable], split: str, leaks: HeldOut | None, out: Path
) -> Tally:
    """Write the rows of dev or test that have two sides, neither of which is in `leaks`."""
    tally = Tally()
    with BitextWriter(out / f"{split}.arrow") as writer:
        for source, table in enumerate(tables):
            for src, tgt in read_texts(tally, source, table.path, pair):
                rows = pa.RecordBatch.from_arrays([src.array, tgt.array], schema=SCHEMA)
                empty = (src.lengths == 0) | (tgt.lengths == 0)
                shared = ~empty & (leaks.shares(src) | leaks.shares(tgt)) if leaks else np.zeros_like(empty)
                tally.remove(EMPTY, rows.filter(pa.array(empty)), source, None)
                tally.remove(HELD_OUT, rows.filter(pa.array(shared)), source, None)
                left = ~(empty | shared)
                tally.kept[source] += int(left.sum())
                writer.write(rows.filter(pa.array(left)))
    return tally


def _check(pair: LangPair, tallies: dict[str, Tally]) -> None:
    """Raise ValueError for a split without rows; warn of small splits and of rules that remove much."""
    counts = ", ".join(f"{name} {tally.kept.total()} of {tally.read.total()}" for name, tally in tallies.items())
    for name, tally in tallies.items():
        if tally.kept.total() == 0:
            kind = {"train": "training"}.get(name, name)
            removed = ", ".join(f"{rule} {count}" for rule, count in tally.removed.items() if count)
            reason = f"; the rules removed them all ({removed})" if removed else ""
            remedy = "correct the rows, or the rules below corpus.rules (docs/cleaning.md)" if removed else _ADD_ROWS
            if tally.removed[HELD_OUT] and name == "dev":
                remedy = (
                    "dev rows that share text with a test set are removed; give another dev set, or none: then one is "
                    "split off the training text (docs/cleaning.md)"
                )
            elif name != "train":
                remedy += f", or raise corpus.split.{name} and corpus.split.max_share if it is split off"
            raise ValueError(f"pair {pair}: no {kind} rows (kept of read: {counts}){reason}; {remedy}")
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
    dev = tallies["dev"]
    if leaked := dev.removed[HELD_OUT]:
        _log.warning(
            "pair %s: %d of %d dev rows share text with a test set and are removed", pair, leaked, dev.read.total()
        )
    if leaked := train.removed[HELD_OUT]:
        _log.warning("pair %s: %d training rows share text with a dev or test set and are removed", pair, leaked)
