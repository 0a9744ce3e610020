"""The life of one process of a job: requests to stop, the work, and the report of an error."""

import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eval.terminal import log_to_terminal
from pipeline.jobs.heartbeat import Heartbeat, lost_connection
from pipeline.jobs.launch import REPORTS, STOPPED
from pipeline.jobs.rendezvous import World
from pipeline.live import QUIET
from pipeline.stopping import Stopped


class StopRequest:
    """A request to stop. True after SIGTERM or SIGUSR1, or when the process that started the job is gone.

    heartbeat: watches the other processes of a job with collectives, once they have met.
    """

    def __init__(self) -> None:
        self._stop_asked = False
        self._parent = int(os.environ.get("BABELSHARD_PARENT", "0"))
        self.heartbeat: Heartbeat | None = None
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, self._ask)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started the job gets it and stops this one

    def _ask(self, *_: Any) -> None:
        self._stop_asked = True

    def __bool__(self) -> bool:
        return self._stop_asked or (self._parent > 0 and os.getppid() != self._parent)

    def watch(self, world: World, *, limit: int) -> None:
        """Report and end this process when another process of the job is silent. limit: seconds."""
        if world.size > 1:
            self.heartbeat = Heartbeat(world, limit=limit, report=lambda why: _report(why, ""))


def run_process(work: Callable[[dict[str, Any], StopRequest], None]) -> None:
    """Read the job file, do the work and end this process with an exit code.

    An error is reported for the starter of the job to show: a user's error by its message, any other one by its
    traceback. The report goes to memory if the starter is on this machine, and to `rank-<n>.error` beside the job file.
    """
    stop = StopRequest()
    shows_progress = os.environ["RANK"] == "0" and QUIET not in os.environ
    level = logging.INFO if shows_progress else logging.WARNING
    log_to_terminal(level)
    for noisy in ("torch", "DeepSpeed", "wandb"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    code, failure = 0, ""
    try:
        work(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), stop)
    except Stopped:
        code = STOPPED
    except (ValueError, OSError) as error:
        code, failure = 1, f"{error}"
        _report(failure, traceback.format_exc())
    except BaseException as error:  # noqa: BLE001 - the boundary of the process: reported, never swallowed
        if stop.heartbeat is not None and lost_connection(error):
            stop.heartbeat.await_verdict(lambda: bool(stop))
        code, failure = 1, "".join(traceback.format_exception(error))
        _report(failure, "")
    sys.stderr.flush()
    sys.stdout.flush()
    if stop.heartbeat is not None:
        stop.heartbeat.leave(finished=code == 0, failure=failure)
    os._exit(code)  # destructors of process groups would wait for the peers of a failed process


def leave_report(message: str) -> None:
    """Leave the reason why this process ends in the file in memory that its starter reads, if there is one."""
    if memory := os.environ.get(REPORTS):
        with Path(memory).open("ab", buffering=0) as stream:  # one write: lines of several processes stay whole
            stream.write(json.dumps([int(os.environ["RANK"]), message]).encode() + b"\n")


def _report(message: str, detail: str) -> None:
    rank, job_file = os.environ["RANK"], Path(sys.argv[1])
    try:
        leave_report(message)
        temporary = job_file.with_name(f"rank-{rank}.error.tmp")
        temporary.write_text(message, encoding="utf-8")
        temporary.rename(job_file.with_name(f"rank-{rank}.error"))
        print(detail or message, file=sys.stdout)
    except OSError as error:  # the disk may be full, so the terminal gets the message
        print(f"process {rank}: {message} (and its report could not be written: {error})", file=sys.stderr)
