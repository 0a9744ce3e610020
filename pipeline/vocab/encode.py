"""The fourth stage: encode the rows of a pair as token ids, in shards that any process can encode."""

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.corpus.bitext import iter_bitext
from pipeline.corpus.funnel import funnel
from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import SPLITS
from pipeline.files import remove_tree, sync_tree, write_atomically
from pipeline.tasks import in_turn, run_once
from pipeline.vocab.encoded import EncodedSplit, SplitWriter
from pipeline.vocab.ragged import encode_texts
from pipeline.vocab.symbols import UNK
from pipeline.vocab.tokenizer import Vocabulary

__all__ = ["ENCODED", "EncodedSplit", "Shard", "encode", "encode_shard", "encoded_counts", "merge_shards"]

ENCODED = "encode.json"
_LEAST_TOKENS = 3  # a tag, a piece and EOS
_COUNTED = ("rows", "source_tokens", "target_tokens", "dropped", "truncated", "source_unk", "target_unk")
_CHUNK_ROWS = 8192
_CHUNK_BYTES = 16 << 20
_SHARDS = "shards"  # directory of the shards until they are merged

_log = logging.getLogger(__name__)

Counts = dict[str, list[int]]  # by name, one number for each source


@dataclass(frozen=True, kw_only=True)
class Shard:
    """The rows `start` to `stop` of one split of a cleaned pair, which `encode_shard` encodes into `out`.

    limits: most tokens of source and target.
    ends: row of the split at which each source ends.
    tags: tag of each source, often empty.
    threads: threads of SentencePiece; -1 is one for each core.
    """

    vocabulary: Path
    bitext: Path
    pair: LangPair
    split: str
    start: int
    stop: int
    limits: tuple[int, ...]
    ends: tuple[int, ...]
    tags: tuple[str, ...]
    out: Path
    threads: int


Run = Callable[[Callable[[Shard], Counts], Sequence[Shard]], Sequence[Counts]]


def encode(
    vocabulary: Path,
    bitext: Path,
    pair: LangPair,
    *,
    max_source_tokens: int,
    max_target_tokens: int,
    out: Path,
    shard_rows: int | None = None,
    threads: int = -1,
    run: Run = in_turn,
) -> None:
    """Write the token ids of every split of a cleaned pair, and `encode.json` with the counts, to `out`.

    Training sources with a tag have it after the tag of the language. Ids are uint16 if both vocabularies have fewer
    than 65,536 pieces, else uint32.

    max_source_tokens, max_target_tokens: limits, which include tags and EOS. Longer training rows are left out. Longer
        dev and test rows are cut before EOS, so that they have a loss.
    shard_rows: training rows of a shard, by default all. It does not affect the result.
    run: calls a function on every shard.
    Raises ValueError if no training row is left.
    """
    limits = {"max_source_tokens": max_source_tokens, "max_target_tokens": max_target_tokens}
    for side, limit in zip(("source", "target"), limits.values(), strict=True):
        if limit < _LEAST_TOKENS:
            raise ValueError(
                f"{side}={limit} of batch.shapes leaves no room for a tag, a piece and EOS; choose 3 or more"
            )
    if (out / ENCODED).exists():  # only the shards may be left to remove
        _remove_shards(out)
        return
    sources, shards = _plan(vocabulary, bitext, pair, tuple(limits.values()), out, shard_rows, threads)
    counts = _run(shards, run, out)
    totals = {split: {name: sum(values) for name, values in by_source.items()} for split, by_source in counts.items()}
    _check(pair, totals["train"], limits)
    content = {
        "pair": pair.name,
        "dtype": EncodedSplit.open(out, "train").source_tokens.dtype.name,
        **limits,
        "splits": totals,
        "sources": [
            {"name": source["name"], "tag": source["tag"], "rows": rows}
            for source, rows in zip(sources, counts["train"]["rows"], strict=True)
        ],
    }
    for path in out.iterdir():
        if path.name != _SHARDS:
            sync_tree(path)
    write_atomically(out / ENCODED, json.dumps(content, ensure_ascii=False, indent=1) + "\n")
    _remove_shards(out)


def encode_shard(shard: Shard) -> Counts:
    """Write the arrays of a shard, and return counts of its rows and tokens by source."""
    vocabulary = Vocabulary.load(shard.vocabulary)
    pair = shard.pair
    language, first = vocabulary.first_source_tag(pair.src, pair.tgt), vocabulary.first_target_tags(pair.tgt)
    tags = [vocabulary.source_tag(tag) for tag in shard.tags]
    dtype = np.dtype(np.uint16 if max(vocabulary.source_size, vocabulary.target_size) < 1 << 16 else np.uint32)
    counts = {name: np.zeros(len(shard.ends), dtype=np.int64) for name in _COUNTED}
    row = shard.start
    with SplitWriter(shard.out, shard.split, dtype) as writer:
        for batch in _chunks(iter_bitext(shard.bitext, shard.split, shard.start, shard.stop)):
            owner = np.searchsorted(shard.ends, np.arange(row, row + batch.num_rows), side="right")
            row += batch.num_rows
            source, target = (
                encode_texts(model, batch[side].cast(pa.binary()).to_pylist(), shard.threads)
                for model, side in ((vocabulary.source_model, "src"), (vocabulary.target_model, "tgt"))
            )
            source = source.prefixed(language, np.array(tags, dtype=np.int32)[owner])
            for tag in first:
                target = target.prefixed(tag, np.full(len(target.lengths), -1, dtype=np.int32))
            fits = (source.lengths <= shard.limits[0]) & (target.lengths <= shard.limits[1])
            if shard.split == "train":
                source, target = source.select(fits), target.select(fits)
                _add(counts["dropped"], owner[~fits])
                owner = owner[fits]
            else:
                source, target = source.cut(shard.limits[0]), target.cut(shard.limits[1])
                _add(counts["truncated"], owner[~fits])
            writer.write(source, target)
            _add(counts["rows"], owner)
            for side, rows in (("source", source), ("target", target)):
                _add(counts[f"{side}_tokens"], owner, rows.lengths)
                unknown = rows.tokens == UNK
                if unknown.any():  # rare, because byte_fallback spells characters without a piece
                    _add(counts[f"{side}_unk"], np.repeat(owner, rows.lengths)[unknown])
    assert row == shard.stop, f"{shard.bitext} has no {shard.stop} rows of {shard.split}"
    return {name: values.tolist() for name, values in counts.items()}


def merge_shards(directories: Sequence[Path], counts: Sequence[Counts], split: str, out: Path) -> Counts:
    """Join the arrays of a split's shards, in order, in `out`, and return the sums of their counts.

    The result of a merge may be a shard of a larger merge. A single shard that lies in `out` stays as it is.
    """
    if list(directories) != [out]:
        dtype = EncodedSplit.open(directories[0], split).source_tokens.dtype
        with SplitWriter(out, split, dtype) as writer:
            for directory in directories:
                writer.append(directory, split)
    names = counts[0]
    return {
        name: [sum(values) for values in zip(*(shard_counts[name] for shard_counts in counts), strict=True)]
        for name in names
    }


def encoded_counts(directory: Path) -> dict[str, Any]:
    """Return the content of `encode.json`: pair, dtype, limits, counts by split, and training rows of each source."""
    content: dict[str, Any] = json.loads((directory / ENCODED).read_text(encoding="utf-8"))
    return content


def characters_per_token(vocabulary: Path, encoded: Path) -> float:
    """Return the mean characters of a target token of the development set, each sentence's EOS being a token.

    Sentences that were cut because they are too long count as far as they are kept.
    """
    dev = EncodedSplit.open(encoded, "dev")
    texts = Vocabulary.load(vocabulary).decode_target([dev.target(row).tolist() for row in range(len(dev))])
    return sum(map(len, texts)) / int(dev.target_lengths.sum())


def _encode_once(shard: Shard) -> Counts:
    """Encode a shard, but return the counts of an earlier call for a shard with a directory of its own."""
    if shard.out.parent.name != _SHARDS:
        return encode_shard(shard)
    counts: Counts = run_once(shard.out, lambda out: encode_shard(replace(shard, out=out)))
    return counts


def _plan(
    vocabulary: Path,
    bitext: Path,
    pair: LangPair,
    limits: tuple[int, ...],
    out: Path,
    shard_rows: int | None,
    threads: int,
) -> tuple[list[dict[str, Any]], list[Shard]]:
    """Return the sources of the training rows, and the shards of all splits."""
    cleaned = funnel(bitext)
    assert cleaned["pair"] == pair.name, f"{bitext} holds {cleaned['pair']}, not {pair}"
    sources: list[dict[str, Any]] = cleaned["sources"]
    whole = Shard(
        vocabulary=vocabulary,
        bitext=bitext,
        pair=pair,
        split="train",
        start=0,
        stop=cleaned["train"]["kept"],
        limits=limits,
        ends=tuple(accumulate(source["kept"] for source in sources)),
        tags=tuple(source["tag"] for source in sources),
        out=out,
        threads=threads,
    )
    assert whole.ends[-1] == whole.stop, f"{bitext}: sources have {whole.ends[-1]} rows of {whole.stop}"
    shards = list(_cut_up(whole, shard_rows or whole.stop))
    for split in SPLITS[1:]:
        rows = cleaned[split]["kept"]
        shards.append(replace(whole, split=split, stop=rows, ends=(rows,), tags=("",)))
    return sources, shards


def _run(shards: Sequence[Shard], run: Run, out: Path) -> dict[str, Counts]:
    """Encode all shards, and merge them by split."""
    encoded = list(zip(shards, run(_encode_once, shards), strict=True))
    merged = {}
    for split in dict.fromkeys(shard.split for shard in shards):
        parts = [(shard.out, counts) for shard, counts in encoded if shard.split == split]
        merged[split] = merge_shards([path for path, _ in parts], [counts for _, counts in parts], split, out)
    return merged


def _remove_shards(out: Path) -> None:
    for directory in out.glob(_SHARDS):
        remove_tree(directory)


def _cut_up(whole: Shard, rows: int) -> Iterator[Shard]:
    if rows >= whole.stop:
        yield whole
        return
    for start in range(0, whole.stop, rows):
        stop = min(start + rows, whole.stop)
        yield replace(whole, start=start, stop=stop, out=whole.out / _SHARDS / f"{start:012d}-{stop:012d}")


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
    """Yield the rows in tables of about _CHUNK_ROWS rows or _CHUNK_BYTES bytes of text; the last may be smaller."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _CHUNK_ROWS or size >= _CHUNK_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _add(totals: NDArray[np.int64], owner: NDArray[np.intp], values: NDArray[np.int64] | None = None) -> None:
    """Add each row's value, or 1, to the total of its source. bincount's float64 is exact for the sums of a batch."""
    totals += np.bincount(owner, weights=values, minlength=len(totals)).astype(np.int64)


def _check(pair: LangPair, train: dict[str, int], limits: dict[str, int]) -> None:
    total = train["rows"] + train["dropped"]
    if train["rows"] == 0:
        source, target = limits.values()
        raise ValueError(
            f"pair {pair}: all {total} training rows exceed {source} source or {target} target tokens; "
            "raise source or target of a shape of batch.shapes"
        )
    if train["dropped"]:
        _log.info(
            "pair %s: %d of %d training rows are longer than batch.shapes and left out", pair, train["dropped"], total
        )
