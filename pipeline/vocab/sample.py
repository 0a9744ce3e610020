"""Sample of the training rows, by temperature, that vocabularies are trained on."""

import hashlib
from collections.abc import Mapping
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pipeline.corpus.languages import LangPair


def allocate_lines(num_rows: Mapping[LangPair, int], budget: int, temperature: float) -> dict[LangPair, int]:
    """Rows to take of each pair: shares as n ** (1 / temperature), at most n, min(budget, all rows) in sum.

    What a small pair lacks of its share goes to the others, in proportion to their shares.
    """
    weights = {pair: Fraction(n ** (1.0 / temperature)) for pair, n in num_rows.items() if n > 0}
    taken = dict.fromkeys(num_rows, 0)
    left = budget
    while weights:
        total = sum(weights.values())
        full = [pair for pair, weight in weights.items() if left * weight >= num_rows[pair] * total]
        if not full:
            break
        for pair in full:
            taken[pair] = num_rows[pair]
            left -= num_rows[pair]
            del weights[pair]
    exact = {pair: left * weight / sum(weights.values()) for pair, weight in weights.items()}
    taken.update({pair: int(share) for pair, share in exact.items()})
    spare = left - sum(int(share) for share in exact.values()) if exact else 0
    for pair in sorted(exact, key=lambda p: (int(exact[p]) - exact[p], p))[:spare]:  # largest remainder first
        taken[pair] += 1
    return taken


def sample_rows(num_rows: int, num_taken: int, pair: LangPair, seed: int) -> NDArray[np.int64]:
    """Sorted indices of rows taken without replacement; a function of its arguments alone."""
    key = int.from_bytes(hashlib.blake2b(pair.name.encode(), digest_size=8).digest(), "little")
    chosen = np.random.default_rng([seed, key]).choice(num_rows, size=num_taken, replace=False, shuffle=False)
    return np.sort(chosen).astype(np.int64)
