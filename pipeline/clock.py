"""Durations for people."""

import heapq
from collections.abc import Sequence


def clock(seconds: float) -> str:
    """Return 1:02:03 or 2:03, or -:-- where the number of seconds is unknown."""
    if seconds != seconds or seconds == float("inf"):
        return "-:--"
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def makespan(running: Sequence[float], waiting: Sequence[float], at_once: int) -> float:
    """Return the seconds until all jobs are done, where the waiting ones begin in turn when a place is free."""
    places = [*running, *[0.0] * (at_once - len(running))]
    heapq.heapify(places)
    ends = [*running]
    for seconds in waiting:
        ends.append(heapq.heappop(places) + seconds)
        heapq.heappush(places, ends[-1])
    return max(ends, default=0.0)
