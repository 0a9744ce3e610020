"""A command on the terminal: one line a step, the last of which is redrawn in place, and the time of the whole below.

Warnings are written above these lines. All other messages of the stages are shown by `runtime.verbose`, and where there
is no terminal.
"""

import logging
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pipeline.config import ROOT, RunConfig
from pipeline.dag.status import RunStatus, now, read_status
from pipeline.dag.status_file import StatusFile, recorded
from pipeline.dag.steps import begun_steps, run_line
from pipeline.live import QUIET, LiveLines, is_live, live_stderr

logger = logging.getLogger(__name__)

INTERVAL = 1.0  # seconds between two looks at the status
ALWAYS = "pipeline.dag.run"  # beginning of the names of modules whose messages are for every user


@contextmanager
def watched(config: RunConfig, steps: Sequence[str]) -> Iterator[StatusFile]:
    """Keep the status of a run as `recorded` does, and show its steps on the terminal while the block runs."""
    directory = ROOT / config.runtime.runs / config.name
    with recorded(directory, steps=steps) as status:
        if config.runtime.verbose or not is_live(sys.stderr):
            yield status
        else:
            with _shown(directory):
                yield status


@contextmanager
def _shown(directory: Path) -> Iterator[None]:
    with live_stderr() as live, _quiet_logs():
        view, ended = _View(live), threading.Event()

        def run() -> None:
            try:
                while not ended.wait(INTERVAL):
                    if (status := read_status(directory)) is not None:  # None while its results are laid out
                        view.show(status)
            except Exception:  # the run needs no lines
                logger.exception("the progress is not shown any more, the run continues")

        thread = threading.Thread(target=run, name="progress", daemon=True)
        thread.start()
        is_done = False
        try:
            yield
            is_done = True
        finally:
            ended.set()
            thread.join()
            if (status := read_status(directory)) is not None:
                view.close(status, is_done=is_done)


class _View:
    """The lines of the steps on the terminal."""

    def __init__(self, live: LiveLines) -> None:
        self._live = live
        self._num_finished = 0

    def show(self, status: RunStatus) -> None:
        """Draw the step that is under way, below those that were finished since the last time."""
        *finished, current = begun_steps(status, now())
        self._draw([step.finished() for step in finished], [current.running(status), run_line(status)])

    def close(self, status: RunStatus, *, is_done: bool) -> None:
        """Draw the lines that stay. is_done: whether the command did all of its work."""
        if not status.stages:
            self._draw([], [])
            return
        *finished, last = begun_steps(status, now())
        self._draw([*(step.finished() for step in finished), last.finished() if is_done else last.ended()], [])

    def _draw(self, finished: Sequence[str], lines: Sequence[str]) -> None:
        width, _ = self._live.size
        cut = [line if len(line) <= width else line[: width - 1] + "…" for line in lines]
        self._live.show(cut, above=finished[self._num_finished :])
        self._num_finished = max(self._num_finished, len(finished))


@contextmanager
def _quiet_logs() -> Iterator[None]:
    """Let warnings alone through, of this process and of those that it starts, and messages for every user."""

    def passes(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING or record.name.startswith(ALWAYS)

    handlers = logging.getLogger().handlers
    for handler in handlers:
        handler.addFilter(passes)
    os.environ[QUIET] = "1"
    try:
        yield
    finally:
        del os.environ[QUIET]
        for handler in handlers:
            handler.removeFilter(passes)
