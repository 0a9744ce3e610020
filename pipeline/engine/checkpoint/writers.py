"""Decide which process writes which tensor of a checkpoint, before anything is copied to the host."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from pipeline.parallel.layout import AXES


class Part(NamedTuple):
    """One process's part of a tensor. axes: the axes of the mesh that cut the tensor. size: bytes of the part."""

    name: str
    axes: tuple[str, ...]
    size: int


def names_to_write(parts: Iterable[Part], sizes: Mapping[str, int], place: Mapping[str, int]) -> set[str]:
    """Return the names of the tensors whose part one process writes. Each part is written once, without a collective.

    Several processes hold the same part if an axis does not cut the tensor. The one of them that has least to write
    takes it; the largest parts are dealt first.

    parts: the same names, axes and sizes on every process.
    sizes: number of processes on each axis of `AXES`.
    place: coordinates of the process.
    """
    names, load = set(), np.zeros([sizes[axis] for axis in AXES])
    for part in sorted(parts, key=lambda part: -part.size):
        cut = tuple(dim for dim, axis in enumerate(AXES) if axis in part.axes)
        most = load.max(axis=cut, keepdims=True)  # of the processes that would write the parts of one copy
        chosen = np.unravel_index(int(most.argmin()), most.shape)
        writers = tuple(slice(None) if dim in cut else int(chosen[dim]) for dim in range(len(AXES)))
        load[writers] += part.size
        if all(writer in (slice(None), place[axis]) for writer, axis in zip(writers, AXES, strict=True)):
            names.add(part.name)
    return names
