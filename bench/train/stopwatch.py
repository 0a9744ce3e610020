"""A stopwatch for the parts of a training step. It wraps the functions of the real loop in the benchmark's process."""

import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

PARTS = ("forward", "backward", "step", "data", "logging", "collectives")
COLLECTIVES = (
    *("all_reduce", "all_to_all_single", "all_gather", "all_gather_into_tensor", "_all_gather_base", "barrier"),
    *("reduce_scatter_tensor", "_reduce_scatter_base", "reduce", "broadcast", "all_gather_object"),
)

F = TypeVar("F", bound=Callable[..., Any])


class Stopwatch:
    """Seconds of the main thread by part. A part inside another counts for itself alone, so that the sum is right."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self._stack: list[str] = []
        self._since = 0.0
        self._thread = threading.current_thread()

    def timed(self, part: str, function: F) -> F:
        """Return the function with a stopwatch that adds its time to `part`."""

        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            if threading.current_thread() is not self._thread:
                return function(*args, **kwargs)
            self._switch()
            self._stack.append(part)
            try:
                return function(*args, **kwargs)
            finally:
                self._switch()
                self._stack.pop()

        return run  # type: ignore[return-value]

    def _switch(self) -> None:
        now = time.perf_counter()
        if self._stack:
            self.seconds[self._stack[-1]] += now - self._since
        self._since = now


def observe(watch: Stopwatch) -> None:
    """Wrap the functions that the trainer calls, in this process. Call this before the trainer is built."""
    import torch.distributed as dist

    from pipeline.engine.deepspeed import Engine
    from pipeline.train.feed import Feed
    from pipeline.train.records import Records

    for name in COLLECTIVES:
        setattr(dist, name, watch.timed("collectives", getattr(dist, name)))
    for part, method in (("forward", "__call__"), ("backward", "backward"), ("step", "step")):
        setattr(Engine, method, watch.timed(part, getattr(Engine, method)))
    for method in ("write", "progress"):
        setattr(Records, method, watch.timed("logging", getattr(Records, method)))
    Feed.prepare = watch.timed("data", Feed.prepare)  # type: ignore[method-assign]
