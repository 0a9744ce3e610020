"""Packing sentence pairs into rows, rows into groups, groups into steps of one shape.

A sentence is named by (pair index, index within the pair), one row of an int64 array [n, 2]. Its lengths on the two
sides are a row of another array [n, 2].
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.batch.changed import ChangedRows
from pipeline.batch.config import GroupShape
from pipeline.batch.patterns import BITS, row_patterns

Ints = npt.NDArray[np.int64]
Group = list[list[tuple[int, int]]]  # rows of (pair, index)


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Packed rows.

    order: positions of sentences in the array that was packed, row after row.
    ends: end of each row in `order`.
    """

    order: Ints
    ends: Ints

    def __len__(self) -> int:
        return len(self.ends)

    def take(self, rows: Ints) -> "Rows":
        """Select rows, in the order of the argument."""
        sizes = np.diff(self.ends, prepend=0)[rows]
        ends = np.cumsum(sizes)
        where = np.arange(ends[-1] if len(ends) else 0) + np.repeat(self.ends[rows] - ends, sizes)
        return Rows(order=self.order[where], ends=ends)


@dataclass(frozen=True, kw_only=True, eq=False)
class Step:
    """One training step: groups of one shape.

    shape: shape of its groups.
    num_groups: number of groups. Missing rows are empty ones at the end.
    sentences: names of sentences, [n, 2], row after row.
    lengths: tokens of source and target of each sentence, [n, 2].
    ends: end of each row in these arrays.
    changed: the sentences with negative indices; None where augmentation is off.
    """

    shape: GroupShape
    num_groups: int
    sentences: Ints
    lengths: Ints
    ends: Ints
    changed: ChangedRows | None = None

    def group(self, index: int) -> Group:
        """Return the rows of a group, fewer than its shape has if the step is short of rows."""
        first = index * self.shape.rows
        ends = self.ends[first : first + self.shape.rows].tolist()
        if not ends:
            return []
        start = int(self.ends[first - 1]) if first else 0
        names: list[tuple[int, int]] = list(map(tuple, self.sentences[start : ends[-1]].tolist()))
        return [names[begin - start : end - start] for begin, end in zip([start, *ends], ends, strict=False)]

    @property
    def groups(self) -> list[Group]:
        """All groups."""
        return [self.group(index) for index in range(self.num_groups)]

    @property
    def target_tokens(self) -> int:
        return int(self.lengths[:, 1].sum())

    @property
    def nonempty_groups(self) -> int:
        return -(-len(self.ends) // self.shape.rows)


def pack_rows(lengths: Ints, shapes: Sequence[GroupShape]) -> list[Rows]:
    """Pack sentences with these lengths, [n, 2], into rows of each shape (two-dimensional bin packing).

    Lengths alone decide which sentences share a row. Sentences of equal lengths are taken in their order.
    Raises ValueError if a sentence is longer than the last shape.
    """
    if not (lengths <= (shapes[-1].source, shapes[-1].target)).all():
        raise ValueError("a sentence pair is longer than the last of batch.shapes; encode drops such pairs")
    kinds = lengths[:, 0] << BITS | lengths[:, 1]
    distinct, counts = np.unique(kinds, return_counts=True)
    patterns = row_patterns(distinct.tolist(), counts.tolist(), shapes)
    flat = [kind for shape_patterns in patterns for row, times in shape_patterns for kind in row * times]
    order = np.empty(len(kinds), dtype=np.int64)
    order[np.argsort(np.asarray(flat, dtype=np.int64), kind="stable")] = np.argsort(kinds, kind="stable")
    rows_of_shapes, start = [], 0
    for shape_patterns in patterns:
        sizes = [size for row, times in shape_patterns for size in [len(row)] * times]
        rows_of_shapes.append(Rows(order=order[start : start + sum(sizes)], ends=np.cumsum(sizes, dtype=np.int64)))
        start += sum(sizes)
    return rows_of_shapes


def pack_steps(
    sentences: Ints,
    lengths: Ints,
    *,
    shapes: Sequence[GroupShape],
    groups_per_step: int,
    rng: np.random.Generator | None,
) -> tuple[list[Step], Ints]:
    """Pack sentences into full steps in random order. Returns the steps and the sentences left over.

    rng: None is for validation. Steps then keep the order of packing, the last ones may be short of groups, and no
        sentence is left over.
    """
    steps: list[Step] = []
    left: list[Ints] = [np.zeros(0, dtype=np.int64)]
    for shape, rows in zip(shapes, pack_rows(lengths, shapes), strict=True):
        if rng is not None:
            rows = rows.take(rng.permutation(len(rows)))
        per_step = shape.rows * groups_per_step
        num_full = len(rows) if rng is None else len(rows) // per_step * per_step
        for first in range(0, num_full, per_step):
            ends = rows.ends[first : first + per_step]
            start = int(rows.ends[first - 1]) if first else 0
            places = rows.order[start : ends[-1]]
            steps.append(
                Step(
                    shape=shape,
                    num_groups=groups_per_step,
                    sentences=sentences[places],
                    lengths=lengths[places],
                    ends=ends - start,
                )
            )
        left.append(rows.order[int(rows.ends[num_full - 1]) if num_full else 0 :])
    if rng is not None:
        steps = [steps[i] for i in rng.permutation(len(steps))]
    leftover: npt.NDArray[Any] = sentences[np.concatenate(left)]
    return steps, leftover
