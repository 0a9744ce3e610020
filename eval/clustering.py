"""Average-linkage clustering of a few hundred things at most, and an order in which like ones stand side by side."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Merge:
    """Two clusters became one: each a tuple of things, in the order in which they are drawn. height: their distance."""

    left: tuple[int, ...]
    right: tuple[int, ...]
    height: float

    @property
    def members(self) -> tuple[int, ...]:
        return self.left + self.right


def average_linkage(distance_PP: NDArray[np.float64]) -> list[Merge]:
    """Merges in rising order of height (UPGMA): the distance of two clusters is the mean over the pairs across. Of two
    clusters that merge, each is turned so that the ends which meet are as close as can be; ties go to the earlier."""
    clusters: list[tuple[int, ...]] = [(place,) for place in range(len(distance_PP))]
    between = distance_PP.astype(np.float64).copy()
    np.fill_diagonal(between, np.inf)
    merges: list[Merge] = []
    while len(clusters) > 1:
        i, j = divmod(int(between.argmin()), len(clusters))  # i < j, the matrix being symmetric
        height = float(between[i, j])
        sizes = len(clusters[i]), len(clusters[j])
        row = (sizes[0] * between[i] + sizes[1] * between[j]) / sum(sizes)
        between[i], between[:, i], between[i, i] = row, row, np.inf
        between = np.delete(np.delete(between, j, axis=0), j, axis=1)
        ways = [(a, b) for a in (clusters[i], clusters[i][::-1]) for b in (clusters[j], clusters[j][::-1])]
        left, right = min(ways, key=lambda way: distance_PP[way[0][-1], way[1][0]])
        merges.append(Merge(left=left, right=right, height=height))
        clusters[i] = left + right
        del clusters[j]
    return merges


def leaf_order(distance_PP: NDArray[np.float64]) -> list[int]:
    """Things in the order of the dendrogram."""
    merges = average_linkage(distance_PP)
    return list(merges[-1].members) if merges else list(range(len(distance_PP)))
