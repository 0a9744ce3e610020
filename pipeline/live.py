"""Lines at the end of a terminal that are redrawn in place, while everything else is written above them."""

import os
import select
import sys
import textwrap
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from eval.terminal import printable

QUIET = "BABELSHARD_QUIET"  # environment variable: set where processes that this one starts are to log warnings alone
DUMB = ("dumb", "unknown")  # values of TERM for terminals without escape sequences
WIDTH, HEIGHT = 120, 24  # size of text in a file, and of a terminal that does not tell its size
POLL = 0.05  # seconds between two looks whether the output has ended


def is_live(out: TextIO) -> bool:
    """Return whether the stream is a terminal whose lines can be redrawn."""
    return out.isatty() and os.environ.get("TERM") not in DUMB


def wrapped(text: str, out: TextIO) -> str:
    """Return the text in lines that fit the stream if it is a terminal. All but the first line are indented."""
    if not out.isatty():
        return text
    columns = os.get_terminal_size(out.fileno()).columns or WIDTH
    return textwrap.fill(text, columns - 1, subsequent_indent="  ", break_on_hyphens=False)


class LiveLines:
    """The last lines of a terminal. Several threads may use it at once. No line may be wider than the terminal."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lock = threading.Lock()
        self._lines: list[str] = []

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines of the terminal that can be used."""
        size = os.get_terminal_size(self._out.fileno())
        return (size.columns or WIDTH) - 1, (size.lines or HEIGHT) - 1

    def show(self, lines: Sequence[str], *, above: Sequence[str] = ()) -> None:
        """Replace the last lines. above: lines that stay, written before them."""
        with self._lock:
            self._write(lines, above)

    def say(self, text: str) -> None:
        """Write a line that stays above the last ones."""
        with self._lock:
            self._write(self._lines, [text])

    def _write(self, lines: Sequence[str], above: Sequence[str]) -> None:
        back = f"\x1b[{len(self._lines)}F\x1b[J" if self._lines else ""
        self._lines = list(lines)
        self._out.write(back + "".join(line + "\n" for line in (*above, *lines)))
        self._out.flush()


@contextmanager
def live_stderr() -> Iterator[LiveLines]:
    """Give lines at the end of the terminal, while the standard error goes above them.

    That is what this process and those that it starts write to descriptor 2. They find no terminal there, so they
    write no progress bars of their own.
    """
    sys.stderr.flush()
    terminal = os.dup(2)
    reader, writer = os.pipe()
    os.dup2(writer, 2)
    os.close(writer)
    ended = threading.Event()
    with os.fdopen(terminal, "w", encoding="utf-8", errors="backslashreplace") as out:
        live = LiveLines(out)
        thread = threading.Thread(target=_copy, args=(reader, live, ended), name="stderr", daemon=True)
        thread.start()
        try:
            yield live
        finally:
            sys.stderr.flush()
            os.dup2(terminal, 2)
            ended.set()
            thread.join()


def _copy(reader: int, live: LiveLines, ended: threading.Event) -> None:
    """Write every line that comes out of a pipe above the live ones, until the pipe is empty and `ended` is set.

    Workers may hold the other end of the pipe for longer.
    """
    rest = b""
    with os.fdopen(reader, "rb", buffering=0) as stream:
        while True:
            last = ended.is_set()
            readable = select.select([stream], [], [], 0.0 if last else POLL)[0]
            output = stream.read(1 << 16) if readable else b""
            *lines, rest = (rest + output).split(b"\n")
            if last and not output:
                lines += [rest] if rest else []
            for line in lines:
                live.say(printable(line.decode("utf-8", errors="backslashreplace")))
            if last and not output:
                return
