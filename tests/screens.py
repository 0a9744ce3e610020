"""The text on a terminal, for programs that redraw its last lines."""

import fcntl
import os
import pty
import re
import struct
import termios
import threading


class Screen:
    """The text on a terminal of a given width, after a program wrote to its other end."""

    def __init__(self, columns, lines):
        self._ours, self.theirs = pty.openpty()
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self._read = b""
        self._reader = threading.Thread(target=self._drain, daemon=True)
        self._reader.start()

    def _drain(self):
        while True:
            try:
                self._read += os.read(self._ours, 4096)
            except OSError:  # the other end is closed
                return

    def close(self):
        """Wait until every process has closed the terminal."""
        self._reader.join()
        os.close(self._ours)

    @property
    def text(self):
        """All that was written so far, escape sequences too."""
        return self._read.decode()

    def rows(self):
        """After moving up n lines, what follows is erased."""
        rows = [""]
        for part in re.split(r"(\x1b\[\d+F\x1b\[J|\r\n)", self.text):
            if part == "\r\n":
                rows.append("")
            elif part.startswith("\x1b"):
                rows = [*rows[: -1 - int(part[2:-4].rstrip("F\x1b"))], ""]
            else:
                rows[-1] += part
        return rows[:-1]
