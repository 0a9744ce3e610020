"""Lengths and sources of the training sentences of each pair."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.batch.proportions import Sources, Unit, units
from pipeline.vocab.encode import encoded_counts
from pipeline.vocab.encoded import EncodedSplit


@dataclass(frozen=True, kw_only=True)
class PairLengths:
    """Token counts of the training sentences of one pair.

    name: name of the pair.
    source, target: tokens of each sentence with tag and end, int arrays [n].
    sources: name and number of rows of each source, in the order of the rows.
    """

    name: str
    source: npt.NDArray[Any]
    target: npt.NDArray[Any]
    sources: Sources


def read_lengths(pairs: Sequence[str], directories: Sequence[str]) -> list[PairLengths]:
    """Read the lengths of encoded pairs. directories: one for each pair."""
    return [_read(pair, Path(directory)) for pair, directory in zip(pairs, directories, strict=True)]


def units_of(lengths: Sequence[PairLengths]) -> list[Unit]:
    """List the units of all pairs: one for each source of a pair, in order."""
    for pair in lengths:
        rows = sum(rows for _, rows in pair.sources)
        assert rows == len(pair.source) == len(pair.target), (pair.name, rows, len(pair.source), len(pair.target))
    return units([pair.sources for pair in lengths])


def sources_of(directory: Path) -> Sources:
    """Return name and number of training rows of each source of an encoded pair, in order."""
    return [(source["name"], source["rows"]) for source in encoded_counts(directory)["sources"]]


def sentence_lengths(sentences: npt.NDArray[np.int64], lengths: Sequence[PairLengths]) -> npt.NDArray[np.int64]:
    """Return the tokens of source and target, [n, 2], for sentences that are named by (pair, index), [n, 2]."""
    tokens = np.empty_like(sentences)
    order = np.argsort(sentences[:, 0], kind="stable")
    ends = np.searchsorted(sentences[order, 0], np.arange(1, len(lengths) + 1))
    for pair, places in zip(lengths, np.split(order, ends[:-1]), strict=True):
        rows = sentences[places, 1]
        tokens[places, 0], tokens[places, 1] = pair.source[rows], pair.target[rows]
    return tokens


def _read(pair: str, directory: Path) -> PairLengths:
    split = EncodedSplit.open(directory, "train")
    source, target = split.source_lengths, split.target_lengths
    return PairLengths(name=pair, source=source, target=target, sources=sources_of(directory))
