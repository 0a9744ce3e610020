"""Settings between two given ones, by the logarithm of the number of training rows."""

import math
from typing import Any

MULTIPLE = 16  # sizes that are multiples of it stay so: matrices of other widths are slower


def interpolate(low: Any, high: Any, share: float, place: str) -> Any:
    """Return the settings at `share` of the way from `low` to `high`, two trees of the same form.

    Numbers change linearly. A whole number is rounded: to a multiple of 16 where both ends are one, else to 1. A real
    number keeps three digits. All other values, and a whole number that is 0 on one side (which turns something off),
    must be equal.
    place: the configuration key of the two, for messages.
    Raises ValueError where the two differ in anything that has no value between.
    """
    if low == high:
        return low
    if isinstance(low, dict) and isinstance(high, dict) and low.keys() == high.keys():
        return {key: interpolate(low[key], high[key], share, f"{place}.{key}") for key in low}
    if isinstance(low, list) and isinstance(high, list) and len(low) == len(high):
        pairs = enumerate(zip(low, high, strict=True))
        return [interpolate(first, second, share, f"{place}[{index}]") for index, (first, second) in pairs]
    if _is_number(low) and _is_number(high):
        value = low + share * (high - low)
        if isinstance(low, float) or isinstance(high, float):
            return float(f"{value:.3g}")
        if low and high:
            multiple = MULTIPLE if low % MULTIPLE == high % MULTIPLE == 0 else 1
            return round(value / multiple) * multiple
    raise ValueError(
        f"{place}: there is no value between {low!r} and {high!r}; give both tiers the same, or set "
        "baselines.interpolate=false"
    )


def log_share(rows: int, low: int, high: int) -> float:
    """Return where `rows` lies between `low` and `high` on a logarithmic scale: 0 at `low`, 1 at `high`."""
    return math.log(rows / low) / math.log(high / low)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
