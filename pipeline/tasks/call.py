"""A call that another process makes: the function and its payload are sent there, and an Outcome is sent back."""

import logging
import os
import pickle
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from logging.handlers import QueueHandler
from queue import SimpleQueue
from typing import Any

ONE_THREAD = (
    "OMP_NUM_THREADS",  # Arrow reads it, too
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "ARROW_IO_THREADS",
)


class TaskFailed(Exception):  # noqa: N818 - as JobFailed
    """A task was lost without an error of its own. The message names the task and the remedy."""


class RemoteTraceback(Exception):  # noqa: N818 - the cause of an error, never raised itself
    """The traceback of a task's error, as text from the process that made the call."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result or the error of a call. trace: text of the error's traceback. records: log records of the task."""

    result: Any = None
    error: BaseException | None = None
    trace: str = ""
    records: list[logging.LogRecord] = field(default_factory=list)

    def value(self) -> Any:
        """Log the task's records here, and return its result or raise its error."""
        for record in self.records:
            logger = logging.getLogger(record.name)
            if logger.isEnabledFor(record.levelno):
                logger.handle(record)
        if self.error is not None:
            raise self.error from RemoteTraceback(self.trace)
        return self.result


def pack(function: Callable[[Any], Any], payload: Any, name: str) -> bytes:
    """Return the call as bytes. Raises ValueError where another process could not make it."""
    remedy = "the function must stand at the top level of an importable module, and the payload be plain data"
    if getattr(function, "__module__", None) == "__main__":
        raise ValueError(f"{name}: {function!r} is part of the command that was started; {remedy}")
    try:
        return pickle.dumps((function, payload))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(f"{name} cannot be sent to another process: {error}; {remedy}") from error


def perform(call: bytes) -> bytes:
    """Make a call and return the bytes of its Outcome."""
    records: SimpleQueue[logging.LogRecord] = SimpleQueue()
    handler = QueueHandler(records)
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    root.addHandler(handler)
    try:
        function, payload = pickle.loads(call)
        result = function(payload)
        logged = [records.get() for _ in range(records.qsize())]
        return pickle.dumps(Outcome(result=result, records=logged))
    except BaseException as error:  # noqa: BLE001 - the other process raises it again
        logged = [records.get() for _ in range(records.qsize())]
        return _failure(error, logged)
    finally:
        root.removeHandler(handler)


def _failure(error: BaseException, records: list[logging.LogRecord]) -> bytes:
    """Return the error itself where it can be pickled, else its text."""
    trace = "".join(traceback.format_exception(error))
    try:
        packed = pickle.dumps(Outcome(error=error, trace=trace, records=records))
        pickle.loads(packed)
    except Exception:  # noqa: BLE001 - whatever an exception's own pickling raises
        text = traceback.format_exception_only(error)[-1].strip()
        return pickle.dumps(Outcome(error=RuntimeError(text), trace=trace, records=records))
    return packed


def environment() -> dict[str, str]:
    """Return the variables of a process that makes calls: one thread, and the modules of this process.

    Its allocator keeps freed memory up to a bound, because batch after batch needs the same amount. That saves a fifth
    of the time of NumPy on batches of some MB.
    """
    return {
        **dict.fromkeys(ONE_THREAD, "1"),
        "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
        "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
        "MALLOC_TOP_PAD_": str(16 << 20),
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
