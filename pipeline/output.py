"""What a command prints for whoever called it."""

import os
import sys


class ReaderGone(Exception):  # noqa: N818 - no error: whoever read the output has had enough
    """Nobody reads the standard output any more."""


def say(text: str) -> None:
    """Print lines to the standard output, all of them before this returns. Raises ReaderGone."""
    try:
        print(text, flush=True)
    except BrokenPipeError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes what is left when it ends
        raise ReaderGone from error
