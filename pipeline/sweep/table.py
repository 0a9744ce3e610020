"""The points of a sweep as a table: the progress of each, and the time until all are done."""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import TextIO

from eval.number_format import duration
from eval.text_table import aligned
from pipeline.clock import clock
from pipeline.dag.status import RunStatus, StageStatus, now, read_status
from pipeline.dag.steps import left_in_words
from pipeline.live import WIDTH, LiveLines, is_live
from pipeline.sweep.estimate import Point, Standing, after_training, left, pace, total

__all__ = ["SWEEP", "Point", "Standings", "draw", "live_table", "load_points"]

logger = logging.getLogger(__name__)

SWEEP = "sweep.json"
HEADER = ("id", "state", "stage", "%", "loss", "tokens/s", "elapsed", "ETA")
STAGE = HEADER.index("stage")  # the column that is cut on a narrow terminal
SHORTEST = 8  # characters of that column
UNKNOWN = float("nan")


def load_points(directory: Path) -> list[Point]:
    """Return the points that `sweep.json` in a sweep's directory lists."""
    entries = json.loads((directory / SWEEP).read_text(encoding="utf-8"))["points"]
    return [Point(id=point["id"], directory=directory / point["directory"], flops=point["flops"]) for point in entries]


class Standings:
    """A function that reads the status of points. One that failed before this object was made may be tried again."""

    def __init__(self, points: Sequence[Point]) -> None:
        self._points = points
        self._since = now()
        self._statuses: dict[str, RunStatus | None] = {}

    def __call__(self) -> list[Standing]:
        for point in self._points:
            status = read_status(point.directory)
            if status is not None:  # None while its results are laid out
                self._statuses[point.id] = status
        return [self._standing(point, self._statuses.get(point.id)) for point in self._points]

    def _standing(self, point: Point, status: RunStatus | None) -> Standing:
        given_up = status is not None and status.state == "failed" and status.updated >= self._since
        return Standing(point=point, status=status, given_up=given_up)


@contextmanager
def live_table(
    points: Sequence[Point], out: TextIO, *, at_once: int | None = None, interval: float = 2.0, every: float = 600.0
) -> Iterator[Callable[[str], None]]:
    """Show the table from a thread while the block runs, and once more at its end.

    On a terminal the table is redrawn in place, and log records go above it. Elsewhere each change of a state is a
    line, and the table is written now and then. Gives a function that writes a line above the table.
    at_once: points that run side by side, for the estimate of the time; by default as many as do now.
    interval: seconds between looks at the points.
    every: seconds between tables that are not redrawn.
    """
    table = _Live(Standings(points), out, at_once=at_once, every=every)
    ended = threading.Event()

    def run() -> None:
        try:
            table.show()
            while not ended.wait(interval):
                table.show()
            table.show(last=True)
        except Exception:  # the points need no table
            logger.exception("the table ends here, the sweep goes on")

    thread = threading.Thread(target=run, name="table", daemon=True)
    thread.start()
    try:
        with _logged_above(out, table.say) if is_live(out) else nullcontext():
            yield table.say
    finally:
        ended.set()
        thread.join()


@contextmanager
def _logged_above(out: TextIO, say: Callable[[str], None]) -> Iterator[None]:
    """Send the log records for `out` to `say` instead."""
    streams = [handler for handler in logging.getLogger().handlers if isinstance(handler, logging.StreamHandler)]
    handlers = [handler for handler in streams if handler.stream is out]
    for handler in handlers:
        handler.setStream(_SayingStream(say))
    try:
        yield
    finally:
        for handler in handlers:
            handler.setStream(out)


class _SayingStream(StringIO):
    """A stream that passes every text to `say`."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say

    def write(self, text: str) -> int:
        self._say(text.rstrip("\n"))
        return len(text)


class _Live:
    """The table on the terminal or in a file."""

    def __init__(self, standings: Standings, out: TextIO, *, at_once: int | None, every: float) -> None:
        self._standings, self._out, self._at_once, self._every = standings, out, at_once, every
        self._live = LiveLines(out) if is_live(out) else None
        self._lock = threading.Lock()
        self._states: dict[str, str] = {}
        self._shown_at = time.monotonic()

    def show(self, *, last: bool = False) -> None:
        """Draw the table, or write what changed. last: write the table in any case."""
        standings = self._standings()
        with self._lock:
            if self._live is not None:
                width, height = self._live.size
                self._live.show(draw(standings, at_once=self._at_once, width=width, height=height))
                return
            lines = [line for standing in standings if (line := self._change(standing))]
            if last or time.monotonic() - self._shown_at >= self._every:
                self._shown_at = time.monotonic()
                lines += draw(standings, at_once=self._at_once, width=WIDTH)
            self._write(lines)

    def say(self, text: str) -> None:
        """Write a line above the table."""
        with self._lock:
            if self._live is not None:
                self._live.say(text)
            else:
                self._write([text])

    def _write(self, lines: Sequence[str]) -> None:
        self._out.write("".join(line + "\n" for line in lines))
        self._out.flush()

    def _change(self, standing: Standing) -> str:
        """Return a line for a point whose state changed, else nothing."""
        name, state, status = standing.point.id, standing.state, standing.status
        if state == self._states.setdefault(name, "waiting"):
            return ""
        self._states[name] = state
        if status is None or state == "running":
            return f"{name}: {state}"
        return f"{name}: {state} after {clock(status.seconds)}{f': {status.error}' if status.error else ''}"


def draw(
    standings: Sequence[Standing], *, width: int, height: int | None = None, at_once: int | None = None
) -> list[str]:
    """Return the table in lines of at most `width` characters, and below it the time that is left.

    height: number of lines; without room for all points, those that do not run are counted instead.
    """
    now_, after = pace(standings), after_training(standings)
    rows = {s.point.id: _rows(s, left(s, now_, after)) for s in standings}
    hidden: list[Standing] = []
    if height is not None:
        for standing in sorted(standings, key=_importance):
            if sum(map(len, rows.values())) + 2 + bool(hidden) > height and len(rows) > 1:
                hidden.append(standing)
                del rows[standing.point.id]
    lines = _aligned([HEADER, *(row for point_rows in rows.values() for row in point_rows)], width)
    if hidden:
        lines.append(f"and {len(hidden)} more: {_counts(hidden)}")
    return [line[:width] for line in (*lines, _summary(standings, at_once))]


def _rows(standing: Standing, seconds_left: float | None) -> list[tuple[str, ...]]:
    """Return a row for each unfinished stage of a point, and one row for a point without such."""
    status, name, ending = standing.status, standing.point.id, _left(seconds_left)
    if status is None:
        return [(name, "waiting", "", "", "", "", "", ending)]
    if status.state == "done" or standing.given_up:
        ending = ""
    unfinished = [stage for stage in status.stages if stage.open or stage.state in ("stopped", "lost")]
    rows = [(*_cells(stage), clock(stage.seconds), _left(stage.seconds_left)) for stage in unfinished]
    if (batch := status.batch) is not None and batch.num_done < batch.total:
        share = f"{100 * batch.num_done / batch.total:.0f}"
        title = f"{batch.num_done} of {batch.total} {batch.what}"
        rows.insert(0, (title, share, "", "", "", _left(batch.seconds_left)))
    if status.error or not rows:
        rows = [(status.error, "", "", "", "", "")]
    return [
        (name, status.state, *rows[0][:-2], clock(status.seconds), ending),
        *(("", "", *row) for row in rows[1:]),
    ]


def _cells(stage: StageStatus) -> tuple[str, ...]:
    title = f"waits for {stage.title}" if stage.state == "waiting" else stage.title
    share = f"{100 * stage.fraction:.0f}" if stage.fraction is not None else ""
    loss = f"{stage.loss:.2f}" if stage.loss is not None else ""
    rate = f"{stage.tokens_per_second:,.0f}" if stage.tokens_per_second is not None else ""
    return title, share, loss, rate


def _left(seconds: float | None) -> str:
    return clock(UNKNOWN if seconds is None else seconds)


def _aligned(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return the rows as lines no longer than the width: a stage that is too long for it is cut."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    widths[STAGE] = max(SHORTEST, min(widths[STAGE], width - sum(widths) + widths[STAGE] - 2 * (len(HEADER) - 1)))
    cut = [
        [cell if len(cell) <= size else cell[: size - 1] + "…" for cell, size in zip(row, widths, strict=True)]
        for row in rows
    ]
    return aligned(cut, left=range(STAGE + 1)).splitlines()


def _importance(standing: Standing) -> int:
    """Return the rank of a point; the lowest ones are left out first."""
    return ("waiting", "done", "stopped", "lost", "failed", "running").index(standing.state)


def _counts(standings: Sequence[Standing]) -> str:
    states = [standing.state for standing in standings]
    return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(sorted(states)))


def _summary(standings: Sequence[Standing], at_once: int | None) -> str:
    text = _counts(standings)
    running = sum(standing.state == "running" for standing in standings)
    seconds = total(standings, at_once or max(1, running))
    if seconds is None:
        return f"{text}; time left not known yet"
    if seconds == 0:
        return text
    ready = datetime.now() + timedelta(seconds=seconds)
    alone = standings[0].status if len(standings) == 1 else None
    time_left = left_in_words(alone, duration(seconds)) if alone is not None else f"about {duration(seconds)}"
    return f"{text}; {time_left} left, until {ready:%a %H:%M}"
