"""The rows of a cleaned pair in two halves, so that no model scores a row that it was trained on.

A row belongs to a half by the hash of its number and the seed.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.corpus.bitext import SCHEMA, iter_bitext, write_bitext
from pipeline.corpus.cleaning.characters import mix
from pipeline.corpus.cleaning.codepoints import Bools, Hashes
from pipeline.corpus.funnel import FUNNEL, funnel
from pipeline.corpus.languages import LangPair
from pipeline.files import write_atomically


def second_half(num_rows: int, seed: int) -> Bools:
    """Return a mask of the rows of the second half: [N]."""
    mask: Bools = _draws(num_rows, seed) % np.uint64(2) == 1
    return mask


def training_rows(cleaned: Path, *, half: int, most: int, trusted: Sequence[str], seed: int) -> Bools:
    """Return a mask of the rows on which the model of a half is trained: [N].

    half: 0 or 1.
    most: largest number of rows; a sample is drawn from more.
    trusted: names of sources that rows may come from; empty for all.
    """
    sources = funnel(cleaned)["sources"]
    num_rows = sum(source["kept"] for source in sources)
    draws = _draws(num_rows, seed)
    candidates: Bools = draws % np.uint64(2) == half
    ends = [0, *accumulate(source["kept"] for source in sources)]
    for source, start, end in zip(sources, ends, ends[1:], strict=False):
        if trusted and source["name"] not in trusted:
            candidates[start:end] = False
    if int(candidates.sum()) > most:
        candidates &= draws <= np.partition(draws[candidates], most - 1)[most - 1]
    return candidates


def write_half(
    cleaned: Path, pair: LangPair, *, half: int, most: int, trusted: Sequence[str], seed: int, out: Path
) -> None:
    """Write a half as a cleaned pair: `train` to train its model, `dev`, and the rows of the OTHER half as `test`.

    pair: the direction of the model. If it is not that of the rows, the sides are exchanged.
    Other arguments are as in `training_rows`.
    Raises ValueError if a half has no rows to train on, or none to score.
    """
    content = funnel(cleaned)
    swapped = content["pair"] != pair.name
    train = training_rows(cleaned, half=half, most=most, trusted=trusted, seed=seed)
    test = second_half(len(train), seed) != bool(half)
    if trusted and test.any() and not train.any():
        count = sum(source["kept"] for source in content["sources"] if source["name"] in trusted)
        raise ValueError(
            f"pair {content['pair']}: {count} of its {len(train)} cleaned rows are of corpus.learned.trusted="
            f"{list(trusted)}, too few for two halves; trust more sources, or set "
            f"corpus.learned.remove_of={{{content['pair']}: 0}}, which leaves the pair as it is"
        )
    if not train.any() or not test.any():
        raise ValueError(
            f"pair {content['pair']}: its {len(train)} rows are too few for two halves with rows to train on; set "
            f"corpus.learned.remove_of={{{content['pair']}: 0}}, which leaves the pair as it is"
        )
    rows = {
        "train": _chosen(iter_bitext(cleaned, "train"), train),
        "dev": iter_bitext(cleaned, "dev"),
        "test": _chosen(iter_bitext(cleaned, "train"), test),
    }
    record: dict[str, Any] = {"pair": pair.name}
    for split, batches in rows.items():
        record[split] = {"kept": write_bitext(out / f"{split}.arrow", (_turned(batch, swapped) for batch in batches))}
    record["sources"] = [{"name": "half", "tag": "", "kept": record["train"]["kept"]}]
    write_atomically(out / FUNNEL, json.dumps(record, indent=1) + "\n")


def _draws(num_rows: int, seed: int) -> Hashes:
    """Return a random number for each row, the same in each call with this seed: [N]."""
    return mix(mix(np.arange(num_rows, dtype=np.uint64)) + np.uint64(seed))


def _chosen(batches: Iterator[pa.RecordBatch], mask: Bools) -> Iterator[pa.RecordBatch]:
    start = 0
    for batch in batches:
        yield batch.filter(pa.array(mask[start : start + batch.num_rows]))
        start += batch.num_rows


def _turned(batch: pa.RecordBatch, swapped: bool) -> pa.RecordBatch:
    """Return the batch, with its sides exchanged where the direction is the other one."""
    return pa.RecordBatch.from_arrays([batch["tgt"], batch["src"]], schema=SCHEMA) if swapped else batch
