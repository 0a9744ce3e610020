"""Average-linkage clustering of up to a few hundred items, and an order that puts similar items side by side."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Merge:
    """A merge of two clusters.

    left, right: the items of each cluster, in the order in which they are drawn.
    height: the distance of the clusters.
    """

    left: tuple[int, ...]
    right: tuple[int, ...]
    height: float

    @property
    def members(self) -> tuple[int, ...]:
        return self.left + self.right


def average_linkage(distance_PP: NDArray[np.float64]) -> list[Merge]:
    """Return the merges in rising order of height (UPGMA).

    The distance of two clusters is the mean distance of their items. Clusters that merge may be reversed, so that the
    ends that meet are as close as possible. Ties go to the earlier cluster.

    distance_PP: symmetric matrix of the distances of the items.
    """
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
        orders = [(a, b) for a in (clusters[i], clusters[i][::-1]) for b in (clusters[j], clusters[j][::-1])]
        left, right = min(orders, key=lambda order: distance_PP[order[0][-1], order[1][0]])
        merges.append(Merge(left=left, right=right, height=height))
        clusters[i] = left + right
        del clusters[j]
    return merges


def leaf_order(distance_PP: NDArray[np.float64]) -> list[int]:
    """Return the items in the order of the dendrogram."""
    merges = average_linkage(distance_PP)
    return list(merges[-1].members) if merges else list(range(len(distance_PP)))
