"""Starting the processes of one job on this machine, and ending them together.

Each process runs `python -m <module> <job.json>` in a session of its own, with RANK, WORLD_SIZE and LOCAL_RANK in its
environment, so the same modules run under torchrun, srun or DeepSpeed's launcher.
"""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pipeline.stage import Stopped, stopping

logger = logging.getLogger(__name__)

STOPPED = 75  # exit code of a process that was asked to stop, saved its work and can be resumed (EX_TEMPFAIL)
GRACE = 60.0  # seconds a process gets to save its work
FAILED_GRACE = 3.0  # seconds the others get once one has failed: without it they can save nothing
HUGE = str(1 << 40)

_children: set[subprocess.Popen[bytes]] = set()
_lock = threading.Lock()


class JobFailed(Exception):  # noqa: N818
    """A process of a job failed; the message names it and its error."""


def launch(module: str, job: dict[str, Any], *, directory: Path, processes: int, threads: int, title: str) -> None:
    """Run a job to its end. directory: its logs go to `directory`. Raises Stopped or JobFailed."""
    directory.mkdir(parents=True, exist_ok=True)
    store = directory / "rendezvous"
    store.unlink(missing_ok=True)
    for old in directory.glob("rank-*.error"):
        old.unlink()
    job_file = directory / "job.json"
    job_file.write_text(json.dumps(job, ensure_ascii=False, indent=1), encoding="utf-8")
    started: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(processes):
            environment = process_environment(rank, processes, threads, store)
            with (directory / f"rank-{rank}.out").open("wb") as output, _lock:
                if stopping.is_set():
                    raise Stopped(title)
                process = subprocess.Popen(
                    [sys.executable, "-m", module, str(job_file)],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    start_new_session=True,
                )
                _children.add(process)
            started.append(process)
        _wait(started, directory, title)
    except JobFailed:
        _end(started, grace=FAILED_GRACE)
        raise
    finally:
        _end(started)
        store.unlink(missing_ok=True)


def process_environment(rank: int, processes: int, threads: int, store: Path) -> dict[str, str]:
    """Environment of one process: its place, its threads, and an allocator that keeps freed memory.

    glibc gives large freed blocks back to the kernel and faults them in again on the next step; training allocates the
    same sizes every step, so the thresholds are raised.
    """
    return {
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(processes),
        "BABELSHARD_RENDEZVOUS": f"file://{store.resolve()}",
        "BABELSHARD_PARENT": str(os.getpid()),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "MALLOC_MMAP_THRESHOLD_": HUGE,
        "MALLOC_TRIM_THRESHOLD_": HUGE,
        "MALLOC_TOP_PAD_": str(64 << 20),
        "MALLOC_ARENA_MAX": "1",
        "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo"),
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
    }


def stop_all() -> None:
    """Ask every running process to save and stop, wait for them, and let no new one start."""
    stopping.set()
    with _lock:
        running = list(_children)
    _end(running)


def _wait(started: list[subprocess.Popen[bytes]], directory: Path, title: str) -> None:
    """Until all have ended well. The first that fails decides; the others are ended by the caller."""
    while True:
        codes = [process.poll() for process in started]
        failed = [rank for rank, code in enumerate(codes) if code not in (None, 0, STOPPED)]
        if failed and not stopping.is_set():
            time.sleep(
                0.5
            )  # a process that dies takes its peers' connections along: let the one with a reason write it
            raise JobFailed(_reason(started, failed, directory, title))
        if all(code is not None for code in codes):
            if any(code != 0 for code in codes):
                raise Stopped(title)
            return
        time.sleep(0.05)


def _reason(started: list[subprocess.Popen[bytes]], failed: list[int], directory: Path, title: str) -> str:
    for process in started:
        process.poll()
    reports = {rank: directory / f"rank-{rank}.error" for rank in range(len(started))}
    written = [(path.stat().st_mtime_ns, rank) for rank, path in reports.items() if path.exists()]
    signalled = [rank for rank in failed if (started[rank].returncode or 0) < 0]
    if signalled:
        name = signal.Signals(-started[signalled[0]].returncode).name
        return f"{title}: process {signalled[0]} of {len(started)} was killed by {name}" + (
            " (out of memory?)" if name == "SIGKILL" else ""
        )
    if written:
        rank = min(written)[1]
        text = reports[rank].read_text(encoding="utf-8").strip()
        blames = text.startswith("process")  # another one than itself: heartbeat.py
        return f"{title}: {text}" if blames else f"{title}: process {rank} of {len(started)} failed: {text}"
    return f"{title}: process {failed[0]} of {len(started)} ended with exit code {started[failed[0]].returncode}"


def _end(processes: list[subprocess.Popen[bytes]], grace: float = GRACE) -> None:
    """SIGTERM, a time of grace, SIGKILL."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + grace
    for process in processes:
        try:
            process.wait(timeout=max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            logger.info("process %d did not stop within %.0f s; killing it", process.pid, grace)
            process.kill()
            process.wait()
    with _lock:
        _children.difference_update(processes)
