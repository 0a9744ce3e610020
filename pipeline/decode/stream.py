"""A stream of lines through a pool of translators: in order, in bounded memory, each as soon as it can be had."""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import SimpleQueue

from pipeline.decode.batches import plan_batches
from pipeline.decode.text import Line, Translated
from pipeline.decode.workers import TranslatorPool

WINDOW_LINES, WINDOW_CHARS = 2000, 1 << 18  # at most, of what has been read when a process is free, to make batches of
OPEN_WINDOWS = 4  # at most, whose translations are not all written
LINE_BYTES = 1 << 20  # at most: an endless line would fill the memory
_READ_BYTES = 1 << 18


class LineReader:
    """Reads lines ahead in a thread, as many as two windows have. A line ends with a line feed and with nothing else.

    parse: number and bytes of a line, from 0, to a Line. The ValueError that it raises ends the reading; it is raised
    here when all lines before have been taken.
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
        """At most a window of what has been read, nothing if nothing has. Raises what ended the reading, ValueError or
        OSError."""
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
        """Whether all there is has been taken."""
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
    """Lines without their line feeds, as they come; the last may lack one. Raises ValueError on one of more than
    LINE_BYTES."""
    begun, number = b"", 1
    while block := os.read(descriptor, _READ_BYTES):
        *ended, begun = (begun + block).split(b"\n")
        for line in ended:
            yield _checked(number, line)
            number += 1
        _checked(number, begun)
    if begun:
        yield begun


def _checked(number: int, line: bytes) -> bytes:
    if len(line) > LINE_BYTES:
        raise ValueError(
            f"line {number} of the input has more than {LINE_BYTES} bytes; the lines before are translated; put line "
            "feeds between its sentences"
        )
    return line


@dataclass(kw_only=True)
class _Window:
    """Lines under way. found: translations so far, by index. written: how many have been."""

    lines: list[Line]
    found: dict[int, Translated] = field(default_factory=dict)
    written: int = 0

    def next(self) -> list[Translated]:
        """Translations that can be written now."""
        ready = []
        while self.written in self.found:
            ready.append(self.found.pop(self.written))
            self.written += 1
        return ready


class Stream:
    """Translates what a descriptor has, in order. write: called with translations as they are known. measure: tokens of
    each text, by which lines are put together."""

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
        """To its end. Raises the errors of `LineReader.take` and of `TranslatorPool.submit`, when what was before them
        is written."""
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
        """Give the workers that have nothing to do what there is."""
        while self._under_way < self._pool.runtime.processes and len(self._windows) < OPEN_WINDOWS:
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
        future = self._pool.submit([window.lines[index] for index in batch])
        self._under_way += 1
        future.add_done_callback(lambda done: self._events.put((window, batch, done)))

    def _collect(self) -> None:
        """Wait for an event, then deal with all there are."""
        event = self._events.get()
        while True:
            if event is not None:
                window, batch, done = event
                self._under_way -= 1
                window.found.update(zip(batch, done.result(), strict=True))
            if self._events.empty():
                return
            event = self._events.get()

    def _write_ready(self) -> None:
        while self._windows:
            window = self._windows[0]
            if ready := window.next():
                self._write(ready)
            if window.written < len(window.lines):
                return
            self._windows.popleft()
