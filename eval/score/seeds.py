"""Resampling of seeds, so that the interval of a system counts what its seeds changed.

The score of a system is the mean over its seeds. A bootstrap resample draws test sentences for all models, and seeds
for each system: a hierarchical bootstrap. Of n seeds it draws n - 1 with replacement (Rao and Wu 1988), because the
variance of their mean over the draws is then the unbiased estimate of its variance. Drawing n would give (n - 1) / n of
it, which is half for two seeds.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray


def seed_shares(num_seeds: int, n_resamples: int, draw: str) -> NDArray[np.float64]:
    """Return the share of each seed in each resample, [n_resamples, num_seeds]. The shares of a resample sum to 1.

    draw: names the draw. Models that are trained together have the same draw, others an independent one.
    """
    if num_seeds == 1:
        return np.ones((n_resamples, 1))
    number = int.from_bytes(hashlib.blake2b(draw.encode(), digest_size=8).digest())
    counts = np.random.default_rng(number).multinomial(num_seeds - 1, np.full(num_seeds, 1 / num_seeds), n_resamples)
    shares: NDArray[np.float64] = counts / (num_seeds - 1)
    return shares
