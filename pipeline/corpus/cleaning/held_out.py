"""The index of held-out text: hashes of every sentence and run of words of the dev and test texts of a corpus."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.corpus.cleaning.codepoints import Bools, Hashes, Texts
from pipeline.corpus.tables import read_batches

INDEX = "held_out.json"
_FILTER_BITS = 24


class HashSet:
    """A set of sorted hashes. A bitmap rejects most hashes that are not in the set before the binary search."""

    def __init__(self, hashes: Hashes) -> None:
        self.hashes = hashes
        self._bitmap = np.zeros(1 << _FILTER_BITS, dtype=bool)
        self._bitmap[self._slot(self.hashes)] = True

    def contains(self, hashes: Hashes) -> Bools:
        """Return a mask of the hashes that are in the set."""
        present = self._bitmap[self._slot(hashes)]
        candidates = np.flatnonzero(present)
        positions = np.searchsorted(self.hashes, hashes[candidates])
        present[candidates] = self.hashes[np.minimum(positions, len(self.hashes) - 1)] == hashes[candidates]
        return present

    @staticmethod
    def _slot(hashes: Hashes) -> Hashes:
        return hashes >> np.uint64(64 - _FILTER_BITS)


@dataclass(frozen=True)
class HeldOut:
    """Hashes of the folded texts (`Folded`) of all dev and test sets, in any language."""

    sentences: HashSet
    shingles: HashSet
    shingle_words: int

    @classmethod
    def load(cls, directory: Path) -> "HeldOut":
        """Read the index that `index_held_out` wrote."""
        words = json.loads((directory / INDEX).read_text(encoding="utf-8"))["shingle_words"]
        sentences, shingles = [HashSet(np.load(directory / f"{name}.npy")) for name in ("sentences", "shingles")]
        return cls(sentences, shingles, words)

    def shares(self, texts: Texts) -> Bools:
        """Return a mask of the texts that are a held-out sentence or share a run of words with one."""
        folded = texts.folded
        shared = self.sentences.contains(hashes_of_sentences(texts)) & (texts.lengths > 0)
        if self.shingle_words:
            shingles, rows = folded.shingles(self.shingle_words)
            shared[rows[self.shingles.contains(shingles)]] = True
        return shared


def index_held_out(tables: Iterable[tuple[Path, tuple[str, ...]]], shingle_words: int, out: Path) -> None:
    """Write the index of the texts of some tables (path, codes) to `out`. shingle_words: 0 indexes sentences alone."""
    sentences, shingles = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)]
    num_texts = 0
    for path, codes in tables:
        for batch in read_batches(path, codes):
            for column in batch.columns:
                texts = Texts.normalized(column.drop_null())
                num_texts += len(texts)
                sentences.append(hashes_of_sentences(texts)[texts.lengths > 0])
                if shingle_words:
                    shingles.append(texts.folded.shingles(shingle_words)[0])
    for name, hashes in (("sentences", sentences), ("shingles", shingles)):
        np.save(out / f"{name}.npy", np.unique(np.concatenate(hashes)))
    (out / INDEX).write_text(json.dumps({"texts": num_texts, "shingle_words": shingle_words}) + "\n", encoding="utf-8")


def hashes_of_sentences(texts: Texts) -> Hashes:
    """Return the hash of each text without separators, or of the whole text if it has nothing else: [N]."""
    return np.where(texts.folded.empty, texts.hashes, texts.folded.essences)
