"""Translation of a stream of lines by a pool of processes, in order and in bounded memory."""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import SimpleQueue

from pipeline.decode.job.pivot import submit_steps
from pipeline.decode.job.workers import TranslatorPool
from pipeline.decode.text.batches import plan_batches
from pipeline.decode.text.line import Line, Translated

WINDOW_LINES, WINDOW_CHARS = 2000, 1 << 18  # most lines and characters that are put into batches together
OPEN_WINDOWS = 4  # most windows whose translations are not all written
LINE_BYTES = 1 << 20  # most bytes of a line, because an endless line would fill the memory
_READ_BYTES = 1 << 18


class LineReader:
    """A thread that reads lines ahead, at most two windows of them. Only a line feed ends a line.

    descriptor: file descriptor to read from.
    parse: makes a Line of the number of a line, from 0, and its bytes. Its ValueError ends the reading; `take` raises
        it after all lines before.
    changed: called after a line was read and at the end.
    """

    def __init__(self, descriptor: int, parse: Callable[[int, bytes], Line], changed: Callable[[], None]) -> None:
        self._descriptor, self._parse, self._changed = descriptor, parse, changed
        self._lines: deque[Line] = deque()
        self._chars = 0
        self._ended = False
        self._error: Exception | None = None
        self._room = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def take(self) -> list[Line]:
        """Return the lines that have been read, at most a window. Raises the error that ended the reading."""
        with self._room:
            if self._error is not None and not self._lines:
                raise self._error
            window: list[Line] = []
            chars = 0
            while self._lines and len(window) < WINDOW_LINES and chars < WINDOW_CHARS:
                window.append(self._lines.popleft())
                chars += len(window[-1].text)
            self._chars -= chars
            self._room.notify()
            return window

    @property
    def ended(self) -> bool:
        """True when all lines have been taken."""
        with self._room:
            return self._ended and not self._lines and self._error is None

    def _read(self) -> None:
        try:
            for number, content in enumerate(_lines(self._descriptor)):
                line = self._parse(number, content)
                with self._room:
                    self._room.wait_for(self._has_room)
                    self._lines.append(line)
                    self._chars += len(line.text)
                self._changed()
        except Exception as error:  # noqa: BLE001 - raised again by `take`
            self._error = error
        with self._room:
            self._ended = True
        self._changed()

    def _has_room(self) -> bool:
        return len(self._lines) < 2 * WINDOW_LINES and self._chars < 2 * WINDOW_CHARS


def _lines(descriptor: int) -> Iterator[bytes]:
    """Yield lines without their line feeds. The last line may lack one.

    Raises ValueError if a line has more than LINE_BYTES.
    """
    tail, number = b"", 1
    while block := os.read(descriptor, _READ_BYTES):
        *lines, tail = (tail + block).split(b"\n")
        for line in lines:
            yield _checked(number, line)
            number += 1
        _checked(number, tail)
    if tail:
        yield tail


def _checked(number: int, line: bytes) -> bytes:
    if len(line) > LINE_BYTES:
        raise ValueError(
            f"line {number} of the input has more than {LINE_BYTES} bytes; the lines before are translated; put line "
            "feeds between its sentences"
        )
    return line


@dataclass(kw_only=True)
class _Window:
    """Lines that are being translated.

    translations: translations that wait to be written, by index.
    num_written: lines whose translation was written.
    """

    lines: list[Line]
    translations: dict[int, Translated] = field(default_factory=dict)
    num_written: int = 0

    def next(self) -> list[Translated]:
        """Take the translations that can be written now."""
        ready = []
        while self.num_written in self.translations:
            ready.append(self.translations.pop(self.num_written))
            self.num_written += 1
        return ready


class Stream:
    """A translation of the lines that a descriptor gives, in their order.

    descriptor, parse: as in `LineReader`.
    write: called with the next translations as soon as they are known.
    pool: processes that translate.
    measure: counts the tokens of each text, so that lines of like length share a batch.
    """

    def __init__(
        self,
        descriptor: int,
        parse: Callable[[int, bytes], Line],
        write: Callable[[Sequence[Translated]], None],
        pool: TranslatorPool,
        measure: Callable[[Sequence[str]], Sequence[int]],
    ) -> None:
        self._events: SimpleQueue[tuple[_Window, list[int], Future[list[Translated]]] | None] = SimpleQueue()
        self._write, self._pool, self._measure = write, pool, measure
        self._reader = LineReader(descriptor, parse, lambda: self._events.put(None))
        self._windows: deque[_Window] = deque()
        self._under_way = 0  # batches

    def run(self) -> None:
        """Translate all lines.

        Raises the errors of `LineReader.take` and of `TranslatorPool.submit` after the lines before are written.
        """
        self._pool.wait()
        while True:
            failure = self._take()
            if not self._windows:
                if failure is not None:
                    raise failure
                if self._reader.ended:
                    return
            self._collect()
            self._write_ready()

    def _take(self) -> Exception | None:
        """Give lines to workers that are free. Returns the error that ended reading, if there is one."""
        while self._under_way < self._pool.num_replicas and len(self._windows) < OPEN_WINDOWS:
            try:
                lines = self._reader.take()
            except (ValueError, OSError) as error:
                return error
            if not lines:
                return None
            window = _Window(lines=lines)
            self._windows.append(window)
            for batch in plan_batches(self._measure([line.text for line in lines]), self._pool.spec.decode):
                self._submit(window, batch)
        return None

    def _submit(self, window: _Window, batch: list[int]) -> None:
        future = submit_steps(self._pool.submit, [window.lines[index] for index in batch])
        self._under_way += 1
        future.add_done_callback(lambda future: self._events.put((window, batch, future)))

    def _collect(self) -> None:
        """Wait for an event, then handle all events that have come."""
        event = self._events.get()
        while True:
            if event is not None:
                window, batch, future = event
                self._under_way -= 1
                window.translations.update(zip(batch, future.result(), strict=True))
            if self._events.empty():
                return
            event = self._events.get()

    def _write_ready(self) -> None:
        while self._windows:
            window = self._windows[0]
            if ready := window.next():
                self._write(ready)
            if window.num_written < len(window.lines):
                return
            self._windows.popleft()
