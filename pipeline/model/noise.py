"""Randomness as a function of names and numbers, never of a generator's history.

A forward pass visits its random sites (dropout, second choices) in a fixed order. The default generator is seeded by
(seed, step, global group index) before each group. So every draw depends on (seed, step, group, layer, site) alone, for
any number of processes and any accumulation. One group is one micro-batch.
"""

import hashlib

import torch


def key(*parts: int | str) -> int:
    """Return a 63-bit seed made from names and numbers."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def seed_group(seed: int, step: int, group: int) -> None:
    """Seed the draws of one group of one step, on every device of this process."""
    torch.manual_seed(key(seed, "group", step, group))


def generator(*parts: int | str) -> torch.Generator:
    """Return a new CPU generator, seeded by names and numbers."""
    return torch.Generator().manual_seed(key(*parts))
