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

from pipeline.parallel.launch import STOPPED
from pipeline.stage import Stopped


class StopRequest:
    """Set by SIGTERM, or when the process that started the job is gone."""

    def __init__(self) -> None:
        self._asked = False
        self._parent = int(os.environ.get("BABELSHARD_PARENT", "0"))
        signal.signal(signal.SIGTERM, self._ask)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the starter gets it and tells us

    def _ask(self, *_: Any) -> None:
        self._asked = True

    def __bool__(self) -> bool:
        return self._asked or (self._parent > 0 and os.getppid() != self._parent)


def run_process(work: Callable[[dict[str, Any], StopRequest], None]) -> None:
    """Entry of a job's process: read the job, work, leave with an exit code that says how it ended.

    An error is written to `rank-<n>.error` beside the job file, for the starter to show: a user's error as its message,
    anything else as a traceback.
    """
    stop = StopRequest()
    job_file = Path(sys.argv[1])
    rank = int(os.environ["RANK"])
    level = logging.INFO if rank == 0 else logging.WARNING
    logging.basicConfig(level=level, format="%(message)s", stream=sys.stderr)
    for noisy in ("torch", "DeepSpeed", "wandb"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    try:
        work(json.loads(job_file.read_text(encoding="utf-8")), stop)
    except Stopped:
        code = STOPPED
    except (ValueError, OSError) as error:
        code = _report(job_file, rank, f"{error}", traceback.format_exc())
    except BaseException as error:  # noqa: BLE001 - the boundary of the process: reported, never swallowed
        code = _report(job_file, rank, "".join(traceback.format_exception(error)), "")
    else:
        code = 0
    sys.stderr.flush()
    sys.stdout.flush()
    os._exit(code)  # peers of a failed process must not be waited for by destructors of process groups


def _report(job_file: Path, rank: int, message: str, detail: str) -> int:
    try:
        temporary = job_file.with_name(f"rank-{rank}.error.tmp")
        temporary.write_text(message, encoding="utf-8")
        temporary.rename(job_file.with_name(f"rank-{rank}.error"))
        print(detail or message, file=sys.stdout)
    except OSError as error:  # the disk is full, say: the terminal is what is left
        print(f"process {rank}: {message} (and its report could not be written: {error})", file=sys.stderr)
    return 1
