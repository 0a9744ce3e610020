"""Which lengths share a row: two-dimensional best fit over kinds of sentences.

Sentences of equal lengths on both sides are of one kind, `source << BITS | target`, and interchangeable, so a row that
has been found serves as often as its kinds last. What is left is kept as bits of integers: bit t of `targets[s]` is set
while a sentence of s source and t target tokens is left, bit s of `sources` while `targets[s]` is not 0.
"""

from collections import Counter
from collections.abc import Sequence

from pipeline.batch.config import GroupShape

BITS = 20
TARGET = (1 << BITS) - 1
Pattern = tuple[list[int], int]  # kinds of a row, and how many such rows


def row_patterns(kinds: Sequence[int], counts: Sequence[int], shapes: Sequence[GroupShape]) -> list[list[Pattern]]:
    """Rows of each shape for `counts` sentences of each kind, every one of which fits the last shape.

    From the last shape to the first, as many rows as it takes to hold the sentences that need it. One row at a time: it
    starts with the longest of these and takes, again and again, of all sentences left the one that leaves the least
    room and the most even room on both sides. Rows end 98 to 99 % full where a best fit by decreasing length reaches
    93 %, and long rows too, which long sentences alone fill by 70 %.
    """
    stock = _Stock(kinds, counts)
    patterns: list[list[Pattern]] = [[] for _ in shapes]
    for index in reversed(range(len(shapes))):
        size, smaller = shapes[index], shapes[index - 1] if index else None
        seeds = [kind for kind in kinds if stock.left[kind] and not (smaller and _fits(kind, smaller))]
        seeds.sort(key=lambda kind: -max((kind >> BITS) * size.target, (kind & TARGET) * size.source))
        for seed in seeds:
            while stock.left[seed]:
                patterns[index].append(_rows_from(stock, seed, size))
    return patterns


def _rows_from(stock: "_Stock", seed: int, size: GroupShape) -> Pattern:
    """The row that starts with a sentence of kind `seed`, as often as there are sentences for it."""
    row, kind = [], seed
    source, target = size.source, size.target
    while kind >= 0:
        row.append(kind)
        stock.take(kind, 1)
        source, target = source - (kind >> BITS), target - (kind & TARGET)
        kind = stock.best(source, target, size)
    uses = Counter(row)
    again = min(stock.left[kind] // used for kind, used in uses.items())
    if again:
        for kind, used in uses.items():
            stock.take(kind, used * again)
    return row, 1 + again


def _fits(kind: int, shape: GroupShape) -> bool:
    return kind >> BITS <= shape.source and kind & TARGET <= shape.target


class _Stock:
    """Sentences that no row has yet. left: how many of each kind."""

    def __init__(self, kinds: Sequence[int], counts: Sequence[int]) -> None:
        self.left = dict(zip(kinds, counts, strict=True))
        self._targets = [0] * (1 + max((kind >> BITS for kind in kinds), default=0))
        for kind in kinds:
            self._targets[kind >> BITS] |= 1 << (kind & TARGET)
        self._sources = sum(1 << source for source, targets in enumerate(self._targets) if targets)

    def take(self, kind: int, count: int) -> None:
        self.left[kind] -= count
        if not self.left[kind]:
            source = kind >> BITS
            self._targets[source] ^= 1 << (kind & TARGET)
            if not self._targets[source]:
                self._sources ^= 1 << source

    def best(self, source_room: int, target_room: int, size: GroupShape) -> int:
        """The kind that fits with the least a + b + 2 |a - b|, where a and b are the rooms it leaves on both sides as
        shares of a row; -1 if none fits.

        Costs are integers, in 1 / (size of source x size of target). For one source length the cost falls and then
        rises with the target length, so the best is one of the two nearest to the turn; as a grows no cost is below
        2 a, which ends the search.
        """
        size_s, size_t = size.source, size.target
        fitting, target_mask = self._sources & ((2 << source_room) - 1), (2 << target_room) - 1
        target_end = target_room * size_s
        best, best_cost = -1, 4 * size_s * size_t
        while fitting:
            source = fitting.bit_length() - 1
            a = (source_room - source) * size_t
            if 2 * a >= best_cost:
                break
            targets = self._targets[source] & target_mask
            if targets:
                turn = (target_end - a) // size_s
                below = targets & ((2 << turn) - 1) if turn >= 0 else 0
                above = targets ^ below
                if below:  # at least as much room on the target side
                    target = below.bit_length() - 1
                    cost = 3 * (target_end - target * size_s) - a
                    if cost < best_cost:
                        best, best_cost = source << BITS | target, cost
                if above:  # more room on the source side
                    target = (above & -above).bit_length() - 1
                    cost = 3 * a - (target_end - target * size_s)
                    if cost < best_cost:
                        best, best_cost = source << BITS | target, cost
            fitting ^= 1 << source
        return best
