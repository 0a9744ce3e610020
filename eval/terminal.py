"""Safe text for a terminal. It may come from strangers: names of files, answers of servers, lines of a corpus."""

import logging
import re
import sys

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tabs and line ends


def printable(text: str) -> str:
    """Return the text with its control characters written out, as `\\x1b`.

    A terminal obeys such characters, so they could hide or forge its output.
    """
    return _CONTROLS.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


class _PrintableFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def log_to_terminal(level: int = logging.INFO) -> None:
    """Send log records to the standard error: the message of each, without its level and logger."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_PrintableFormatter("%(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
