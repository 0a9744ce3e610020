"""A filter of log records, so that clients cannot fill the log."""

import logging
import time

import h11


class SeldomComplaints(logging.Filter):
    """A filter that passes one complaint about a client in some seconds, with the number of complaints left out before.

    uvicorn logs a warning for every request that is no HTTP, and an error if the answer to a request that it refused
    comes too late. Clients could fill the log with these. All other errors pass.
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
