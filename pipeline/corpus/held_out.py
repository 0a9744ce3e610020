"""What is held out: every sentence and every run of words of the dev and test texts of a corpus, by their hashes."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.corpus.codepoints import Bools, Hashes, Texts
from pipeline.corpus.tables import read_batches

INDEX = "held_out.json"
_FILTER_BITS = 24


class HashSet:
    """Hashes to look up in, given sorted: a bitmap sends most of those that are not there away before the search."""

    def __init__(self, hashes: Hashes) -> None:
        self.hashes = hashes
        self._seen = np.zeros(1 << _FILTER_BITS, dtype=bool)
        self._seen[self._slot(self.hashes)] = True

    def contains(self, hashes: Hashes) -> Bools:
        """Whether each of the hashes is in the set."""
        found = self._seen[self._slot(hashes)]
        maybe = np.flatnonzero(found)
        place = np.searchsorted(self.hashes, hashes[maybe])
        found[maybe] = self.hashes[np.minimum(place, len(self.hashes) - 1)] == hashes[maybe]
        return found

    @staticmethod
    def _slot(hashes: Hashes) -> Hashes:
        return hashes >> np.uint64(64 - _FILTER_BITS)


@dataclass(frozen=True)
class HeldOut:
    """Hashes of the texts of all dev and test sets, whatever their language, as they are compared (`Folded`)."""

    sentences: HashSet
    shingles: HashSet
    shingle_words: int

    @classmethod
    def load(cls, directory: Path) -> "HeldOut":
        words = json.loads((directory / INDEX).read_text(encoding="utf-8"))["shingle_words"]
        sentences, shingles = [HashSet(np.load(directory / f"{name}.npy")) for name in ("sentences", "shingles")]
        return cls(sentences, shingles, words)

    def shares(self, texts: Texts) -> Bools:
        """Whether each text is a held-out sentence or holds a run of words of one."""
        folded = texts.folded
        shared = self.sentences.contains(_sentences(texts)) & (texts.lengths > 0)
        if self.shingle_words:
            shingles, rows = folded.shingles(self.shingle_words)
            shared[rows[self.shingles.contains(shingles)]] = True
        return shared


def index_held_out(tables: Iterable[tuple[Path, tuple[str, ...]]], shingle_words: int, out: Path) -> None:
    """Write the index of the texts in some tables (path, codes) to `out`. shingle_words: 0 for sentences alone."""
    sentences, shingles = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)]
    num_texts = 0
    for path, codes in tables:
        for batch in read_batches(path, codes):
            for column in batch.columns:
                texts = Texts.normalized(column.drop_null())
                num_texts += len(texts)
                sentences.append(_sentences(texts)[texts.lengths > 0])
                if shingle_words:
                    shingles.append(texts.folded.shingles(shingle_words)[0])
    for name, found in (("sentences", sentences), ("shingles", shingles)):
        np.save(out / f"{name}.npy", np.unique(np.concatenate(found)))
    (out / INDEX).write_text(json.dumps({"texts": num_texts, "shingle_words": shingle_words}) + "\n", encoding="utf-8")


def _sentences(texts: Texts) -> Hashes:
    """Hash by which a text is a held-out sentence: without separators, or as it is where it is nothing else: [N]."""
    return np.where(texts.folded.empty, texts.hashes, texts.folded.essences)
