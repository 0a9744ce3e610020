"""Signatures of sets of shingles, from which their Jaccard similarity is estimated (Broder, 1997).

N rows, K hashes, S shingles of all rows, B bands.
"""

import numpy as np
import numpy.typing as npt

from pipeline.corpus.cleaning.characters import mix
from pipeline.corpus.cleaning.codepoints import Folded, Hashes, Ints
from pipeline.corpus.config import NearDuplicateRule

Signatures = npt.NDArray[np.uint16]

NO_SHINGLES = 0xFFFF  # fills the signature of a row without shingles
_BLOCK_ROWS = 2048  # rows that are hashed together; their shingles fit the cache
_TARGET = np.uint64(0x9E3779B97F4A7C15)  # makes a shingle of the target differ from the same words of the source
_SEED = 5
_RECALL = 0.99  # least chance that two rows as similar as the threshold share a band


def band_shape(rule: NearDuplicateRule) -> tuple[int, int]:
    """Return the number of bands of a signature, and of hashes in a band.

    A band has as many hashes as possible, while two rows at the threshold share a band with a chance of _RECALL.
    With b bands of r hashes, two rows of similarity s share one with probability 1 - (1 - s ** r) ** b (Leskovec,
    Rajaraman and Ullman, Mining of Massive Datasets, section 3.4).
    """

    def recall(width: int) -> float:
        chance: float = 1 - (1 - rule.threshold**width) ** (rule.num_hashes // width)
        return chance

    width = max(width for width in range(1, rule.num_hashes + 1) if width == 1 or recall(width) >= _RECALL)
    return rule.num_hashes // width, width


def shingle_sets(source: Folded, target: Folded, size: int) -> tuple[Hashes, Ints]:
    """Return the shingles of every row, [S], and where those of each row begin, [N + 1].

    A row has the shingles of source and target. A side of fewer than `size` words is one shingle, an empty side has
    none. A shingle may occur more than once.
    """
    values, rows = [], []
    for side, salt in ((source, np.uint64(0)), (target, _TARGET)):
        hashes, row = side.shingles(size)
        short = np.ones(len(side.empty), dtype=bool)
        short[row] = False
        alone = np.flatnonzero(short & ~side.empty)
        values += [mix(hashes ^ salt), mix(side.essences[alone] ^ salt)]
        rows += [row, alone]
    row_of = np.concatenate(rows)
    order = np.argsort(row_of, kind="stable")
    return np.concatenate(values)[order], np.searchsorted(row_of[order], np.arange(len(source.empty) + 1))


def signatures(source: Folded, target: Folded, rule: NearDuplicateRule) -> Signatures:
    """Return the signature of every row: [N, K]. It depends on the texts of the row alone.

    Each place holds 16 bits of the shingle that is first in one of K random orders. Two different shingles are equal
    there with a probability of 2 ** -16 (b-bit minwise hashing, Li and König, WWW 2010).
    """
    shingles, offsets = shingle_sets(source, target, rule.shingle_words)
    words = (shingles >> np.uint64(32)).astype(np.uint32)
    generator = np.random.Generator(np.random.PCG64(_SEED))
    factors, masks = generator.integers(0, 1 << 32, (2, rule.num_hashes), dtype=np.uint32)
    factors |= np.uint32(1)
    result_KN = np.full((rule.num_hashes, len(offsets) - 1), NO_SHINGLES, dtype=np.uint16)
    filled = np.flatnonzero(np.diff(offsets))
    for start in range(0, len(filled), _BLOCK_ROWS):
        rows = filled[start : start + _BLOCK_ROWS]
        first, last = offsets[rows[0]], offsets[rows[-1] + 1]
        block, begins = words[first:last], offsets[rows] - first
        for place, (factor, mask) in enumerate(zip(factors, masks, strict=True)):
            result_KN[place, rows] = np.minimum.reduceat((block * factor) ^ mask, begins).astype(np.uint16)
    return np.ascontiguousarray(result_KN.T)


def similarity(first_NK: Signatures, second_NK: Signatures) -> npt.NDArray[np.float64]:
    """Return the estimated Jaccard similarity of the rows with the same index: [N]."""
    shares: npt.NDArray[np.float64] = (first_NK == second_NK).mean(axis=1)
    return shares


def band_keys(signatures_NK: Signatures, rule: NearDuplicateRule) -> tuple[Hashes, Ints]:
    """Return the keys of all bands of all rows, and the row of each key: [N * B] each.

    Two rows share a key if a whole band of their signatures is the same. Rows without shingles have no keys.
    """
    rows = np.flatnonzero((signatures_NK != NO_SHINGLES).any(axis=1))
    values_KN = np.ascontiguousarray(signatures_NK[rows].T).astype(np.uint64)
    bands, width = band_shape(rule)
    keys = np.empty((bands, len(rows)), dtype=np.uint64)
    for band in range(bands):
        key = np.full(len(rows), band, dtype=np.uint64)
        for place in range(band * width, (band + 1) * width):
            key = mix(key ^ values_KN[place])
        keys[band] = key
    return keys.ravel(), np.tile(rows, bands)
