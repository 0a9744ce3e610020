"""Lengths, configurations and streams that several tests use."""

import itertools

import numpy as np

from pipeline.batch.config import BatchConfig, GroupShape
from pipeline.batch.lengths import PairLengths
from pipeline.batch.mixture_config import MixtureConfig
from pipeline.schema import build

SHORT, LONG = GroupShape(rows=4, source=32, target=24), GroupShape(rows=2, source=64, target=48)


def random_lengths(count, seed=0, longest=20, name="de-en", sources=None):
    rng = np.random.default_rng(seed)
    source = rng.integers(3, longest, size=count)
    target = np.clip((source * rng.uniform(0.5, 1.0, size=count)).astype(int), 2, None)
    return PairLengths(name=name, source=source, target=target, sources=sources or [("web", count)])


def config(mixture=None, **changes):
    values = {"shapes": [SHORT, LONG], "groups_per_step": 2, "window_steps": 4}
    return BatchConfig(**{**values, **changes}, mixture=build(MixtureConfig, mixture or {"temperature": 2.0}))


def named(steps):
    """Return the parts of steps that can be compared."""
    return [(step.shape, step.groups) for step in steps]


def take(stream, count):
    return list(itertools.islice(stream, count))


def sentences_of(steps):
    """Return (pair, index) of all sentences of the steps, [n, 2]."""
    return np.concatenate([step.sentences for step in steps])
