"""Any number of different pairs, made from real ones: each joins two short sentences, and their two translations."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

_BATCH_ROWS = 100_000
_SHORT = (20, 100)  # characters of a sentence; similar lengths, so that few rows that share one are near duplicates
_STEP = 7_368_787  # a prime, so that no row is made twice


def short_sentences(table: Path, src: str, tgt: str) -> pa.RecordBatch:
    """Return the columns src and tgt of the rows of a multi-way table that have short texts in both."""
    options = pa.csv.ParseOptions(delimiter="\t", quote_char=False, newlines_in_values=False)
    read = pa.csv.read_csv(table, parse_options=options).select([src, tgt]).combine_chunks()
    lengths = [pc.utf8_length(column).to_numpy() for column in read.columns]
    short = np.all([(_SHORT[0] <= length) & (length <= _SHORT[1]) for length in lengths], axis=0)
    (batch,) = read.rename_columns(["src", "tgt"]).filter(pa.array(short)).combine_chunks().to_batches()
    return batch


def many_pairs(sentences: pa.RecordBatch, count: int) -> Iterator[pa.RecordBatch]:
    """Yield batches of `count` rows (src, tgt), the same for the same sentences.

    Raises ValueError if `count` is more than the pairs of sentences.
    """
    num = sentences.num_rows
    if count > num * num:
        raise ValueError(f"count={count} is more than the {num * num} pairs of {num} sentences; give more sentences")
    assert num % _STEP, "rows would come again"
    for start in range(0, count, _BATCH_ROWS):
        places = np.arange(start, min(start + _BATCH_ROWS, count), dtype=np.int64) * _STEP % (num * num)
        first, second = sentences.take(pa.array(places // num)), sentences.take(pa.array(places % num))
        columns = [pc.binary_join_element_wise(first[side], second[side], " ") for side in ("src", "tgt")]
        yield pa.record_batch(columns, names=["src", "tgt"])


def write_tsv(batches: Iterable[pa.RecordBatch], path: Path) -> int:
    """Write rows as lines of tab-separated texts, compressed if the name ends in .zst, and return their number."""
    rows = 0
    with pa.output_stream(str(path), compression="zstd" if path.suffix == ".zst" else None) as file:
        for batch in batches:
            lines = pc.binary_join_element_wise(batch["src"], batch["tgt"], "\t")
            ended = pc.binary_join_element_wise(lines, "", "\n")
            start, end = (np.frombuffer(ended.buffers()[1], np.int32)[i] for i in (0, len(ended)))
            file.write(memoryview(ended.buffers()[2])[start:end])
            rows += batch.num_rows
    return rows
