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
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.parallel.memory_file import memory_file
from pipeline.stage import Stopped, stopping

logger = logging.getLogger(__name__)

STOPPED = 75  # exit code of a process that was asked to stop, saved its work and can be resumed (EX_TEMPFAIL)
GRACE = 60.0  # seconds a process gets to save its work
FAILED_GRACE = 3.0  # seconds the others get once one has failed: without it they can save nothing
HUGE = str(1 << 40)
REPORTS = "BABELSHARD_REPORTS"  # variable with the path of the file in which processes of a job say why they failed

_children: dict[subprocess.Popen[bytes], signal.Signals] = {}  # and what asks each of them to stop
_lock = threading.Lock()
unsaved: list[str] = []  # jobs that were asked to stop and failed at it, with the reason


class JobFailed(Exception):  # noqa: N818
    """A process of a job failed; the message names it and its error."""


def launch(module: str, job: dict[str, Any], *, directory: Path, processes: int, threads: int, title: str) -> None:
    """Run a job to its end. directory: its logs go to `directory`. Raises Stopped or JobFailed."""
    job_file = write_job(job, directory)
    with memory_file(directory / "rendezvous") as store, memory_file(directory / "reports") as reports:
        started: list[subprocess.Popen[bytes]] = []
        read = partial(read_reports, directory, reports.path)
        try:
            for rank in range(processes):
                environment = {**process_environment(rank, processes, threads, store.path), REPORTS: str(reports.path)}
                command = [sys.executable, "-m", module, str(job_file)]
                inherited = (*store.descriptors, *reports.descriptors)
                started.append(start(command, environment, directory / f"rank-{rank}.out", title, inherited=inherited))
            wait(lambda: [process.poll() for process in started], read, title)
        except JobFailed:
            end(started, grace=FAILED_GRACE)
            raise
        except BaseException:  # it was asked to stop
            end(started)
            codes = [process.returncode for process in started]
            if any(code > 0 and code != STOPPED for code in codes):
                unsaved.append(f"{title}: {_reason(codes, read(), {})}")
            raise
        finally:
            end(started)


def read_reports(directory: Path, memory: Path | None = None) -> list[tuple[int, str]]:
    """Rank of each process that failed and its reason, as they failed. directory: of the job file, where they are on
    other machines; memory: the file that they leave them in on this one."""
    if memory is not None and memory.exists() and (lines := memory.read_text(encoding="utf-8").splitlines()):
        return [(rank, text) for rank, text in map(json.loads, lines)]
    files = sorted((path.stat().st_mtime_ns, path) for path in directory.glob("rank-*.error"))
    return [(int(path.stem.removeprefix("rank-")), path.read_text(encoding="utf-8")) for _, path in files]


def write_job(job: dict[str, Any], directory: Path) -> Path:
    """The job's file, beside which an earlier attempt leaves no trace of how it ended."""
    directory.mkdir(parents=True, exist_ok=True)
    for kind in ("error", "state", "drops"):
        for old in directory.glob(f"rank-*.{kind}"):
            old.unlink()
    job_file = directory / "job.json"
    job_file.write_text(json.dumps(job, ensure_ascii=False, indent=1), encoding="utf-8")
    return job_file


def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    output: Path,
    title: str,
    stop_signal: signal.Signals = signal.SIGTERM,
    inherited: Sequence[int] = (),
) -> "subprocess.Popen[bytes]":
    """A process in a session of its own, which `stop_all` ends. inherited: descriptors that it gets. Raises Stopped
    when that has been asked already."""
    with output.open("wb") as stream, _lock:
        if stopping.is_set():
            raise Stopped(title)
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            start_new_session=True,
            pass_fds=inherited,
        )
        _children[process] = stop_signal
    return process


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
        "BABELSHARD_RENDEZVOUS": f"file://{store.absolute()}",
        "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo"),
        **common_environment(threads),
    }


def common_environment(threads: int) -> dict[str, str]:
    """What is the same on every host and for every process that this one starts."""
    return {
        "BABELSHARD_PARENT": str(os.getpid()),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "MALLOC_MMAP_THRESHOLD_": HUGE,
        "MALLOC_TRIM_THRESHOLD_": HUGE,
        "MALLOC_TOP_PAD_": str(64 << 20),
        "MALLOC_ARENA_MAX": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
    }


def stop_all() -> None:
    """Ask every running process to save and stop, wait for them, and let no new one start."""
    stopping.set()
    with _lock:
        running = list(_children)
    end(running)


def wait(
    poll: Callable[[], Sequence[int | None]],
    reports: Callable[[], Sequence[tuple[int, str]]],
    title: str,
    hosts: Callable[[], Mapping[int, str]] = dict,
    interval: float = 0.05,
) -> None:
    """Until all have ended well. The first that fails decides; the others are ended by the caller.

    poll: the exit code of each process, None while it runs.
    reports: as `read_reports`.
    hosts: of processes by rank, for the message.
    interval: seconds between polls.
    """
    while True:
        codes = poll()
        if any(code not in (None, 0, STOPPED) for code in codes) and not stopping.is_set():
            time.sleep(
                0.5
            )  # a process that dies takes its peers' connections along: let the one with a reason write it
            raise JobFailed(f"{title}: {_reason(poll(), reports(), hosts())}")
        if all(code is not None for code in codes):
            if any(code != 0 for code in codes):
                raise Stopped(title)
            return
        time.sleep(interval)


def _reason(codes: Sequence[int | None], reports: Sequence[tuple[int, str]], hosts: Mapping[int, str]) -> str:
    def name(rank: int) -> str:
        return f"process {rank} of {len(codes)}" + (f" (on {hosts[rank]})" if rank in hosts else "")

    failed = {rank: code for rank, code in enumerate(codes) if code not in (None, 0, STOPPED)}
    signalled = [(rank, -code) for rank, code in failed.items() if code is not None and code < 0]
    if signalled:
        rank, number = signalled[0]
        signal_name = signal.Signals(number).name
        return f"{name(rank)} was killed by {signal_name}" + (" (out of memory?)" if signal_name == "SIGKILL" else "")
    if reports:
        rank, text = reports[0][0], reports[0][1].strip()
        blames = text.startswith("process")  # another one than itself: heartbeat.py
        return text if blames else f"{name(rank)} failed: {text}"
    rank, code = next(iter(failed.items()))
    return f"{name(rank)} ended with exit code {code}"


def end(processes: Sequence["subprocess.Popen[bytes]"], grace: float = GRACE) -> None:
    """SIGTERM (or what else asks a process to stop), a time of grace, SIGKILL."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(_children.get(process, signal.SIGTERM))
    deadline = time.monotonic() + grace
    for process in processes:
        try:
            process.wait(timeout=max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            logger.info("process %d did not stop within %.0f s; killing it", process.pid, grace)
            process.kill()
            process.wait()
    with _lock:
        for process in processes:
            _children.pop(process, None)
