"""Start the processes of one job on this machine and end them together.

Each process runs `python -m <module> <job.json>` in a session of its own, with RANK, WORLD_SIZE and LOCAL_RANK in its
environment. So the same modules run under torchrun, srun or DeepSpeed's launcher.
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

from pipeline.files import write_atomically
from pipeline.jobs.memory_file import memory_file
from pipeline.stopping import Stopped, stopping, unsaved

logger = logging.getLogger(__name__)

STOPPED = 75  # exit code of a process that was asked to stop, saved its work and can be resumed (EX_TEMPFAIL)
GRACE = 60.0  # seconds a process gets to save its work
BEFORE_WORK = (-signal.SIGTERM, -signal.SIGUSR1)  # exit codes of a process that was asked to stop before it listened
FAILED_GRACE = 3.0  # seconds the other processes get once one has failed: without it they cannot save
HUGE = str(1 << 40)  # bytes; no block is as large
REPORTS = "BABELSHARD_REPORTS"  # environment variable: the file in which processes say why they failed

_children: dict[subprocess.Popen[bytes], signal.Signals] = {}  # with the signal that asks each one to stop
_lock = threading.Lock()


class JobFailed(Exception):  # noqa: N818
    """A process of a job failed; the message names it and its error."""


def launch(
    module: str,
    job: dict[str, Any],
    *,
    directory: Path,
    processes: int,
    threads: int,
    title: str,
    variables: Mapping[str, str] | None = None,
) -> None:
    """Run a job to its end on this machine. Raises Stopped or JobFailed.

    module: run by each process, with the path of the job file as its argument.
    job: values for the job file.
    directory: for the job file and the logs.
    threads: of each process.
    title: names the job in messages.
    variables: further environment variables of each process.
    """
    job_file = write_job(job, directory)
    with memory_file(directory / "rendezvous") as store, memory_file(directory / "reports") as reports:
        children: list[subprocess.Popen[bytes]] = []
        read = partial(read_reports, directory, reports.path)
        try:
            for rank in range(processes):
                environment = {
                    **process_environment(rank, processes, threads, store.path),
                    REPORTS: str(reports.path),
                    **(variables or {}),
                }
                command = [sys.executable, "-m", module, str(job_file)]
                inherited = (*store.descriptors, *reports.descriptors)
                children.append(start(command, environment, directory / f"rank-{rank}.out", title, inherited=inherited))
            wait(lambda: [process.poll() for process in children], read, title)
        except JobFailed:
            end(children, grace=FAILED_GRACE)
            raise
        except BaseException:  # the job was asked to stop
            end(children, grace=GRACE)
            codes = [STOPPED if child.returncode in BEFORE_WORK else child.returncode for child in children]
            if -signal.SIGKILL in codes:
                rank = codes.index(-signal.SIGKILL)
                why = f"was killed before it had saved its work (after {GRACE:g} s, or out of memory)"
                unsaved.append(f"{title}: process {rank} of {processes} {why}")
            elif any(code not in (0, STOPPED) for code in codes):
                unsaved.append(f"{title}: {failure(codes, read(), {})}")
            raise
        finally:
            end(children)


def read_reports(directory: Path, memory: Path | None = None) -> list[tuple[int, str]]:
    """Return the rank and the reason of each process that failed, the first failure first.

    directory: of the job file, where processes on other machines leave their reasons.
    memory: the file in which processes on this machine leave them.
    """
    if memory is not None and memory.exists() and (lines := memory.read_text(encoding="utf-8").splitlines()):
        return [(rank, text) for rank, text in map(json.loads, lines)]
    files = sorted((path.stat().st_mtime_ns, path) for path in directory.glob("rank-*.error"))
    return [(int(path.stem.removeprefix("rank-")), path.read_text(encoding="utf-8")) for _, path in files]


def write_job(job: dict[str, Any], directory: Path) -> Path:
    """Write the job file and remove what an earlier attempt left beside it. Return the file's path."""
    directory.mkdir(parents=True, exist_ok=True)
    for kind in ("error", "state", "drops"):
        for path in directory.glob(f"rank-*.{kind}"):
            path.unlink()
    job_file = directory / "job.json"
    write_atomically(job_file, json.dumps(job, ensure_ascii=False, indent=1))  # `read_status` may read it meanwhile
    return job_file


def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    output: Path,
    title: str,
    stop_signal: signal.Signals = signal.SIGTERM,
    inherited: Sequence[int] = (),
) -> "subprocess.Popen[bytes]":
    """Start a process in a session of its own, which `stop_all` can end. Raises Stopped if that was called before.

    output: the file for standard output.
    stop_signal: asks the process to stop.
    inherited: file descriptors that the process inherits.
    """
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
    """Return the environment of one process: its rank, its threads, and an allocator that keeps freed memory.

    By default glibc returns large freed blocks to the kernel and gets them again, page by page, in the next step.
    Training allocates the same sizes in every step, so the thresholds are raised.
    """
    return {
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(processes),
        "BABELSHARD_RENDEZVOUS": f"file://{store.absolute()}",
        **interface_variables("lo"),
        **common_environment(threads),
    }


def interface_variables(name: str) -> dict[str, str]:
    """Return the variables by which gloo and NCCL take a network interface, without those that the user has set.

    NCCL takes every interface whose name begins as the given one, unless an equals sign precedes it.
    """
    variables = {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": f"={name}"}
    return {key: value for key, value in variables.items() if key not in os.environ}


def common_environment(threads: int) -> dict[str, str]:
    """Return the variables that are equal for all processes that this one starts, on any host."""
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
    """Ask all running processes to save and stop, wait for them, and prevent new ones."""
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
    """Wait until all processes have ended well. Raises JobFailed at the first failure, and Stopped.

    The caller then has to end the other processes.

    poll: returns the exit code of each process, None while it runs.
    reports: returns failures, as `read_reports` does.
    hosts: returns the host of each rank, for the message.
    interval: seconds between polls.
    """
    while True:
        codes = poll()
        if any(code not in (None, 0, STOPPED) for code in codes) and not stopping.is_set():
            # The first process that dies breaks the connections of its peers. Give it time to write the reason.
            time.sleep(0.5)
            raise JobFailed(f"{title}: {failure(poll(), reports(), hosts())}")
        if all(code is not None for code in codes):
            if any(code != 0 for code in codes):
                raise Stopped(title)
            return
        time.sleep(interval)


def failure(codes: Sequence[int | None], reports: Sequence[tuple[int, str]], hosts: Mapping[int, str]) -> str:
    """Return which process failed, and why. codes, reports, hosts: as `wait` gets them from its functions."""

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
        names_a_process = text.startswith("process")  # as heartbeat.py does, when another process is lost
        return text if names_a_process else f"{name(rank)} failed: {text}"
    rank, code = next(iter(failed.items()))
    return f"{name(rank)} ended with exit code {code}"


def end(processes: Sequence["subprocess.Popen[bytes]"], grace: float = GRACE) -> None:
    """Ask processes to stop by their signal, SIGTERM by default, and kill them after `grace` seconds."""
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
