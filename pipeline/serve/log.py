"""A filter of log records, so that clients do not decide how large the log becomes."""

import logging
import time

import h11


class SeldomComplaints(logging.Filter):
    """Lets a complaint about a client through once in so many seconds, with the number of those left out before it.

    uvicorn warns of each request that is no HTTP, and logs an error where it has refused a request by itself and the
    answer to it comes too late. Clients would decide by these how large the log becomes. All other errors pass.
    """

    def __init__(self, seconds: float = 60) -> None:
        super().__init__()
        self._seconds = seconds
        self._next = -float("inf")
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if record.levelno != logging.WARNING and not isinstance(error, h11.ProtocolError):
            return True
        now = time.monotonic()
        if now < self._next:
            self._left_out += 1
            return False
        if self._left_out:
            record.msg = f"{record.msg} ({self._left_out} complaints before it were left out)"
        self._next, self._left_out = now + self._seconds, 0
        return True
