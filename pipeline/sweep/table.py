"""The points of a sweep as a table: where each stands, and when all are done."""

import json
import logging
import os
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
from pipeline.status import RunStatus, StageStatus, now, read_status
from pipeline.sweep.estimate import Point, Standing, after_training, left, pace, remaining, total

__all__ = ["SWEEP", "WIDTH", "Point", "Standings", "draw", "live_table", "load_points"]

logger = logging.getLogger(__name__)

SWEEP = "sweep.json"
HEADER = ("id", "state", "stage", "%", "loss", "tokens/s", "elapsed", "ETA")
STAGE = HEADER.index("stage")  # the column that gives way on a narrow terminal
SHORTEST = 8
WIDTH, HEIGHT = 120, 24  # of a table in a file, and of a terminal that does not say
UNKNOWN = float("nan")


def load_points(directory: Path) -> list[Point]:
    """What `sweep.json` in a sweep's directory says of its points, whose directories lie below it."""
    entries = json.loads((directory / SWEEP).read_text(encoding="utf-8"))["points"]
    return [Point(id=each["id"], directory=directory / each["directory"], flops=each["flops"]) for each in entries]


class Standings:
    """Looks where points stand, as often as it is asked. What failed before it was made may yet be tried again."""

    def __init__(self, points: Sequence[Point]) -> None:
        self._points = points
        self._since = now()
        self._seen: dict[str, RunStatus | None] = {}

    def __call__(self) -> list[Standing]:
        for point in self._points:
            status = read_status(point.directory)
            if status is not None:  # else its results are just being laid out
                self._seen[point.id] = status
        return [self._standing(point, self._seen.get(point.id)) for point in self._points]

    def _standing(self, point: Point, status: RunStatus | None) -> Standing:
        given_up = status is not None and status.state == "failed" and status.updated >= self._since
        return Standing(point=point, status=status, given_up=given_up)


@contextmanager
def live_table(
    points: Sequence[Point], out: TextIO, *, at_once: int | None = None, interval: float = 2.0, every: float = 600.0
) -> Iterator[Callable[[str], None]]:
    """Show the table from a thread while the block runs, and once more at its end; gives a function that writes a line
    above it.

    On a terminal it is redrawn in place, and what is logged there goes above it; elsewhere each change of state is a
    line, and the table comes every `every` seconds. interval: seconds between looks. at_once: points that run side by
    side, for the estimate of what is left; by default as many as do now.
    """
    table = _Live(Standings(points), out, at_once=at_once, every=every)
    ended = threading.Event()

    def run() -> None:
        try:
            table.show()
            while not ended.wait(interval):
                table.show()
            table.show(last=True)
        except Exception:  # whatever it is, the points need no table
            logger.exception("the table ends here, the sweep goes on")

    thread = threading.Thread(target=run, name="table", daemon=True)
    thread.start()
    try:
        with _logged_above(out, table.say) if out.isatty() else nullcontext():
            yield table.say
    finally:
        ended.set()
        thread.join()


@contextmanager
def _logged_above(out: TextIO, say: Callable[[str], None]) -> Iterator[None]:
    """What loggers write to `out` is said instead."""
    found = [each for each in logging.getLogger().handlers if isinstance(each, logging.StreamHandler)]
    handlers = [each for each in found if each.stream is out]
    for handler in handlers:
        handler.setStream(_Said(say))
    try:
        yield
    finally:
        for handler in handlers:
            handler.setStream(out)


class _Said(StringIO):
    """A stream whose writes are said."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say

    def write(self, text: str) -> int:
        self._say(text.rstrip("\n"))
        return len(text)


class _Live:
    """The table as it was shown last."""

    def __init__(self, standings: Standings, out: TextIO, *, at_once: int | None, every: float) -> None:
        self._standings, self._out, self._at_once, self._every = standings, out, at_once, every
        self._in_place = out.isatty()
        self._lock = threading.Lock()
        self._lines: list[str] = []
        self._states: dict[str, str] = {}
        self._shown_at = time.monotonic()

    def show(self, *, last: bool = False) -> None:
        found = self._standings()
        with self._lock:
            if self._in_place:
                size = os.get_terminal_size(self._out.fileno())
                width, height = (size.columns or WIDTH) - 1, (size.lines or HEIGHT) - 1  # 0 where it does not say
                self._replace(draw(found, at_once=self._at_once, width=width, height=height))
                return
            lines = [line for standing in found if (line := self._change(standing))]
            if last or time.monotonic() - self._shown_at >= self._every:
                self._shown_at = time.monotonic()
                lines += draw(found, at_once=self._at_once, width=WIDTH)
            self._write(lines)

    def say(self, text: str) -> None:
        with self._lock:
            if self._in_place:
                self._replace([text, *self._lines])
                self._lines = self._lines[1:]
            else:
                self._write([text])

    def _replace(self, lines: list[str]) -> None:
        """In the place of the lines before."""
        back = f"\x1b[{len(self._lines)}F\x1b[J" if self._lines else ""
        self._lines = lines
        self._write(lines, back)

    def _write(self, lines: Sequence[str], before: str = "") -> None:
        self._out.write(before + "".join(line + "\n" for line in lines))
        self._out.flush()

    def _change(self, standing: Standing) -> str:
        """A line for a point whose state is another one than before."""
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
    """The table in lines of at most `width` characters, and what is left of the whole below it. height: lines that
    there is room for; points that do not run give way."""
    now_, after = pace(standings), after_training(standings)
    rows = {s.point.id: _rows(s, left(s, now_, after)) for s in standings}
    hidden: list[Standing] = []
    if height is not None:
        for standing in sorted(standings, key=_importance):
            if sum(map(len, rows.values())) + 2 + bool(hidden) > height and len(rows) > 1:
                hidden.append(standing)
                del rows[standing.point.id]
    lines = _aligned([HEADER, *(row for each in rows.values() for row in each)], width)
    if hidden:
        lines.append(f"and {len(hidden)} more: {_counts(hidden)}")
    return [line[:width] for line in (*lines, _summary(standings, at_once))]


def _rows(standing: Standing, seconds_left: float | None) -> list[tuple[str, ...]]:
    """A row for each stage that is under way, or was when the command ended, and one for a point without such."""
    status, name, ending = standing.status, standing.point.id, _left(seconds_left)
    if status is None:
        return [(name, "waiting", "", "", "", "", "", ending)]
    if status.state == "done" or standing.given_up:
        ending = ""
    unfinished = [stage for stage in status.stages if stage.open or stage.state in ("stopped", "lost")]
    open_ = [(*_shown(stage), clock(stage.seconds), _left(remaining(stage))) for stage in unfinished]
    if (batch := status.batch) is not None and batch.done < batch.total:
        share = f"{100 * batch.done / batch.total:.0f}"
        open_.insert(0, (f"{batch.done} of {batch.total} {batch.what}", share, "", "", "", _left(batch.seconds_left)))
    if status.error or not open_:
        open_ = [(status.error, "", "", "", "", "")]
    return [
        (name, status.state, *open_[0][:-2], clock(status.seconds), ending),
        *(("", "", *row) for row in open_[1:]),
    ]


def _shown(stage: StageStatus) -> tuple[str, ...]:
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
    """Which points to leave out first."""
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
    return f"{text}; about {duration(seconds)} left, until {ready:%a %H:%M}"
