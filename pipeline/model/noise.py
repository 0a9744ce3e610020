"""Randomness as a function of names and numbers, never of a generator's history.

A forward pass draws dropout and second choices in a fixed order of sites, so seeding the default generator by
(seed, step, global group index) before each group keys every draw by (seed, step, group, layer, site), on any number
of processes and with any accumulation. One group is one micro-batch.
"""

import hashlib

import torch


def key(*parts: int | str) -> int:
    """A 63-bit seed from names and numbers."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def seed_group(seed: int, step: int, group: int) -> None:
    """Start the draws of one group of one step (on every device of this process)."""
    torch.manual_seed(key(seed, "group", step, group))


def generator(*parts: int | str) -> torch.Generator:
    """A CPU generator of its own for the named purpose."""
    return torch.Generator().manual_seed(key(*parts))
