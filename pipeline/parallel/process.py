"""Life of one process of a job: its place in the world, a stop asked for by signal, its error on the way out."""

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
from pipeline.parallel.heartbeat import Heartbeat, lost_connection
from pipeline.parallel.launch import REPORTS, STOPPED
from pipeline.parallel.rendezvous import World
from pipeline.stage import Stopped


class StopRequest:
    """Set by SIGTERM or SIGUSR1, as schedulers send them, or when the process that started the job is gone.

    heartbeat: of a job with collectives, from when its processes have met.
    """

    def __init__(self) -> None:
        self._asked = False
        self._parent = int(os.environ.get("BABELSHARD_PARENT", "0"))
        self.heartbeat: Heartbeat | None = None
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, self._ask)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the starter gets it and tells us

    def _ask(self, *_: Any) -> None:
        self._asked = True

    def __bool__(self) -> bool:
        return self._asked or (self._parent > 0 and os.getppid() != self._parent)

    def watch(self, world: World, *, limit: int) -> None:
        """End this process, with a report, when another of its job is silent. limit: seconds."""
        if world.size > 1:
            self.heartbeat = Heartbeat(world, limit=limit, report=lambda why: _report(why, ""))


def run_process(work: Callable[[dict[str, Any], StopRequest], None]) -> None:
    """Entry of a job's process: read the job, work, leave with an exit code that says how it ended.

    An error is left for the starter to show, a user's error as its message and anything else as a traceback: in memory
    where the starter is on this machine, and in `rank-<n>.error` beside the job file.
    """
    stop = StopRequest()
    level = logging.INFO if os.environ["RANK"] == "0" else logging.WARNING
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
    os._exit(code)  # peers of a failed process must not be waited for by destructors of process groups


def _report(message: str, detail: str) -> None:
    rank, job_file = os.environ["RANK"], Path(sys.argv[1])
    try:
        if memory := os.environ.get(REPORTS):
            with Path(memory).open("ab", buffering=0) as stream:  # one write: lines of several processes stay whole
                stream.write(json.dumps([int(rank), message]).encode() + b"\n")
        temporary = job_file.with_name(f"rank-{rank}.error.tmp")
        temporary.write_text(message, encoding="utf-8")
        temporary.rename(job_file.with_name(f"rank-{rank}.error"))
        print(detail or message, file=sys.stdout)
    except OSError as error:  # the disk is full, say: the terminal is what is left
        print(f"process {rank}: {message} (and its report could not be written: {error})", file=sys.stderr)
