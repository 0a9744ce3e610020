"""Output of a command to its caller."""

import os
import sys


class ReaderGone(Exception):  # noqa: N818 - no error: the reader has had enough
    """Nobody reads the standard output any more."""


def say(text: str) -> None:
    """Print lines to the standard output, and flush them. Raises ReaderGone."""
    try:
        print(text, flush=True)
    except BrokenPipeError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes the buffer again when it ends
        raise ReaderGone from error
