"""The end of a command is judged here: its exit code, its last line on the terminal, and the state in status.json."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from eval.terminal import printable
from pipeline.jobs.launch import STOPPED, JobFailed, stop_all
from pipeline.output import ReaderGone
from pipeline.stopping import Stopped, signals, unsaved
from pipeline.tasks import TaskFailed

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
PLAIN = (ValueError, OSError, JobFailed, TaskFailed)  # errors whose message is enough for a user
PARENT = "BABELSHARD_PARENT"  # variable with the number of the process that started this one


class Interrupted(BaseException):
    """Ctrl-C, or a scheduler's SIGTERM or SIGUSR1: each ends a command in order."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """The end of a command. state: `stopped` where the same command continues its work. error: empty where stopped."""

    state: Literal["failed", "stopped"]
    error: str = ""


def ending_of(error: BaseException) -> Ending:
    """Judge an exception that ended a command, whatever a signal was turned into on its way here."""
    if unsaved:
        return Ending(state="failed", error=unsaved[0])
    if signals or isinstance(error, Stopped) or not isinstance(error, Exception):
        return Ending(state="stopped")
    return Ending(state="failed", error=str(error) if isinstance(error, PLAIN) else f"{type(error).__name__}: {error}")


def run_to_end(action: Callable[[], None], *, saves: bool = True) -> int:
    """Run a command and return its exit code, after one clear line on how it ended.

    0: it is done. 1: an error. 130: Ctrl-C. 75 (EX_TEMPFAIL): SIGTERM or SIGUSR1, and the same command continues.
    128 + a signal's number: a command that saves nothing got it, or nobody reads the output (SIGPIPE).
    saves: whether the same command continues from the work that this one did.
    Raises errors that are not PLAIN, which are faults of this program.
    """
    try:
        action()
    except ReaderGone:
        return 128 + signal.SIGPIPE
    except (Interrupted, Stopped, *PLAIN) as error:
        if isinstance(error, PLAIN) and not signals:
            print(f"error: {printable(_message(error, saves))}", file=sys.stderr)
        stop_all()
        return _exit_code(ending_of(error), saves)
    return 0


def handle_signals(*, saves: bool = True) -> None:
    """End the command in order at the first signal of SIGNALS, or once the process that started this one is gone."""
    for number in SIGNALS:
        signal.signal(number, _save_and_end if saves else _end)
    if parent := os.environ.get(PARENT):
        threading.Thread(target=_end_with, args=(int(parent),), daemon=True).start()


def _message(error: Exception, saves: bool) -> str:
    if not isinstance(error, OSError):
        return str(error)
    where = f" ({error.filename})" if error.filename else ""
    kept = "published artifacts are untouched and the partial work is kept: " if saves else ""
    remedy = "make room or fix permissions, then run the same command again"
    return f"{error.strerror or error}{where}; {kept}{remedy}"


def _exit_code(ending: Ending, saves: bool) -> int:
    if signals and not saves:
        return 128 + signals[0]
    if unsaved:
        print(f"error: {unsaved[0]}; what was under way is not saved; what was saved before is kept", file=sys.stderr)
    if ending.state == "failed":
        return 1
    print("stopped; the same command goes on from here", file=sys.stderr)
    return 128 + signal.SIGINT if signals[:1] == [signal.SIGINT] else STOPPED


def _save_and_end(number: int, _frame: Any) -> None:
    _note(number)
    print("stopping: saving what is under way …", file=sys.stderr, flush=True)
    raise Interrupted


def _end(number: int, _frame: Any) -> None:
    _note(number)
    raise Interrupted


def _note(number: int) -> None:
    """Keep the first signal; later ones are ignored, because they have nothing to add."""
    for handled in SIGNALS:
        signal.signal(handled, signal.SIG_IGN)
    signals.append(number)


def _end_with(parent: int) -> None:
    """End in order once the process that started this one, a job of a sweep, is gone."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGTERM)
