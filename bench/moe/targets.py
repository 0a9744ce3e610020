"""The targets of our layer, and the checks that it reaches them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]

OURS_WITHOUT_EXPERTS = "ours without experts"
OURS_ON_CUDA = ("ours", "ours compiled", "ours dropless")
DISPATCH_AND_COMBINE = "dispatch + combine"
MEMORY = ("extra_mb", "accumulating_mb")
ANY = -1
OURS_TO_PEER: dict[str, dict[int, float]] = {  # time of ours over the peer's, by number of experts
    "dense": {8: 1.00, 32: 1.02, 128: 1.15},
    "deepspeed": {ANY: 1.00},
    "lucidrains": {ANY: 1 / 3},
    "nllb": {ANY: 1 / 3},
}
WITHOUT_EXPERTS = {8: 0.04}  # share of the layer's time, by number of experts
DISPATCH_GROWTH = 1.3  # time of dispatch and combine, over that with the fewest experts
MEMORY_TO_DEEPSPEED = 1.05
MEMORY_GROWTH = 1.05  # memory over that with the fewest experts: flat, but for the router's [S, E]
OF_MATMUL = 0.55  # FLOPs a second on CUDA, over those of a large matmul


@dataclass(frozen=True, kw_only=True)
class Check:
    """A measured value and its limit. at_least: the limit is the least allowed value, otherwise the greatest."""

    measured: float
    limit: float
    at_least: bool = False

    @property
    def to_limit(self) -> float:
        """The ratio to the limit. The target is reached if it is at most 1."""
        return self.limit / self.measured if self.at_least else self.measured / self.limit

    @property
    def verdict(self) -> str:
        return "ok" if self.to_limit <= 1 else "over"


def time_check(row: Row, block: Mapping[str, Row], smallest: Row) -> Check | None:
    """Return the check of a judged row's time, or None without a target. A peer's row has our target against the peer.

    block: rows of the same block by variant.
    smallest: the variant's row with the fewest experts.
    """
    variant, experts = row["variant"], row["experts"]
    if row["section"] == "growth":
        if variant != DISPATCH_AND_COMBINE or row is smallest:
            return None
        growth = ratio(row, smallest, "ms")
        return None if growth is None else Check(measured=growth, limit=DISPATCH_GROWTH)
    if variant in OURS_TO_PEER:
        limits = OURS_TO_PEER[variant]
        limit, measured = limits.get(experts, limits.get(ANY)), ratio(block.get("ours"), row, "ms")
    elif variant == OURS_WITHOUT_EXPERTS:
        limit, measured = WITHOUT_EXPERTS.get(experts), row["to_ours"]
    elif row["device"] == "cuda" and variant in OURS_ON_CUDA:
        return row["to_matmul"] and Check(measured=row["to_matmul"], limit=OF_MATMUL, at_least=True)
    else:
        return None
    return None if limit is None or measured is None else Check(measured=measured, limit=limit)


def memory_check(row: Row, block: Mapping[str, Row], smallest: Row) -> Check | None:
    """Return the check of a judged row's extra memory, or None without a target.

    The target is for gradients that do not exist before, as in the measurement of times. Arguments as in `time_check`.
    """
    if row["section"] == "growth" and row["variant"] == "ours" and row is not smallest:
        measured, limit = ratio(row, smallest, "extra_mb"), MEMORY_GROWTH
    elif row["variant"] == "deepspeed":
        measured, limit = ratio(block.get("ours"), row, "extra_mb"), MEMORY_TO_DEEPSPEED
    else:
        return None
    return None if measured is None else Check(measured=measured, limit=limit)


def ratio(row: Row | None, to: Row | None, column: str) -> float | None:
    """Return the ratio of two rows in a column, or None if one has no value."""
    if row is None or to is None or not row.get(column) or not to.get(column):
        return None
    return float(row[column] / to[column])
