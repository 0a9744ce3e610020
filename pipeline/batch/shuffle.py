"""A shuffled order of n rows, any part of which can be computed alone."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

ROUNDS = 6
Words = npt.NDArray[np.uint64]


def shuffled(positions: npt.NDArray[np.int64], size: int, key: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return the values at some positions of a permutation of range(size).

    positions: indices, all below `size`. Time and memory depend on their number alone.
    key: numbers that choose the permutation.
    It is a Feistel network over Z_a x Z_b, with a·b at least size (Black and Rogaway, Ciphers with Arbitrary Finite
    Domains, 2002). Each round adds a hash of one half to the other half. This can be undone, so two positions never
    have the same value. A value of size or more goes through the network again.
    """
    rows = math.isqrt(size - 1) + 1
    columns = -(-size // rows)
    keys: Words = np.random.SeedSequence(list(key)).generate_state(ROUNDS, np.uint64).astype(np.uint64)
    values = _network(positions.astype(np.uint64), rows, columns, keys)
    while len(beyond := np.flatnonzero(values >= size)):
        values[beyond] = _network(values[beyond], rows, columns, keys)
    return values.astype(np.int64)


def _network(values: Words, rows: int, columns: int, keys: Words) -> Words:
    left, right = np.divmod(values, np.uint64(columns))
    for index, key in enumerate(keys):
        if index % 2:
            right = (right + _hash(left, key)) % np.uint64(columns)
        else:
            left = (left + _hash(right, key)) % np.uint64(rows)
    mixed: npt.NDArray[Any] = left * np.uint64(columns) + right
    return mixed


def _hash(values: Words, key: np.uint64) -> Words:
    """Return a 32-bit hash of each value and the key (the first round of splitmix64's finalizer)."""
    mixed = values ^ key
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed >> np.uint64(32)
