"""What our layer is to reach, and whether it does."""

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
WITHOUT_EXPERTS = {8: 0.04}  # share of the layer's time
DISPATCH_GROWTH = 1.3  # dispatch and combine, over their time with the fewest experts
MEMORY_TO_DEEPSPEED = 1.05
MEMORY_GROWTH = 1.05  # flat, within what an exact count leaves to the router's own [S, E]
OF_MATMUL = 0.55  # on CUDA, of the rate of a large matmul


@dataclass(frozen=True, kw_only=True)
class Check:
    """measured must not be above limit, or, where `at_least`, not below."""

    measured: float
    limit: float
    at_least: bool = False

    @property
    def to_limit(self) -> float:
        """1 or less is reached."""
        return self.limit / self.measured if self.at_least else self.measured / self.limit

    @property
    def verdict(self) -> str:
        return "ok" if self.to_limit <= 1 else "over"


def time_check(row: Row, beside: Mapping[str, Row], smallest: Row) -> Check | None:
    """Target of a judged row's time; against a peer, that of ours stands in the peer's row.

    beside: rows of the same block by variant. smallest: the variant's row with the fewest experts.
    """
    variant, experts = row["variant"], row["experts"]
    if row["section"] == "growth":
        if variant != DISPATCH_AND_COMBINE or row is smallest:
            return None
        growth = ratio(row, smallest, "ms")
        return None if growth is None else Check(measured=growth, limit=DISPATCH_GROWTH)
    if variant in OURS_TO_PEER:
        limits = OURS_TO_PEER[variant]
        limit, measured = limits.get(experts, limits.get(ANY)), ratio(beside.get("ours"), row, "ms")
    elif variant == OURS_WITHOUT_EXPERTS:
        limit, measured = WITHOUT_EXPERTS.get(experts), row["to_ours"]
    elif row["device"] == "cuda" and variant in OURS_ON_CUDA:
        return row["to_matmul"] and Check(measured=row["to_matmul"], limit=OF_MATMUL, at_least=True)
    else:
        return None
    return None if limit is None or measured is None else Check(measured=measured, limit=limit)


def memory_check(row: Row, beside: Mapping[str, Row], smallest: Row) -> Check | None:
    """Target of extra memory where gradients start as None, as times are measured; accumulating is shown beside."""
    if row["section"] == "growth" and row["variant"] == "ours" and row is not smallest:
        measured, limit = ratio(row, smallest, "extra_mb"), MEMORY_GROWTH
    elif row["variant"] == "deepspeed":
        measured, limit = ratio(beside.get("ours"), row, "extra_mb"), MEMORY_TO_DEEPSPEED
    else:
        return None
    return None if measured is None else Check(measured=measured, limit=limit)


def ratio(row: Row | None, to: Row | None, column: str) -> float | None:
    """row / to in that column; None where either has no value."""
    if row is None or to is None or not row.get(column) or not to.get(column):
        return None
    return float(row[column] / to[column])
