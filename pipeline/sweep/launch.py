"""Start the jobs of a sweep by Hydra's multirun; its one axis is their names."""

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pipeline.config import ROOT
from pipeline.files import write_atomically
from pipeline.jobs.launch import GRACE, STOPPED, JobFailed
from pipeline.locks import try_lock
from pipeline.sweep.equal import literal
from pipeline.sweep.job import ABOVE_GRACE, INTERVAL, JOBS, LOCK, STATE, STOP

logger = logging.getLogger(__name__)

LAST_LINES = 3  # number of lines of a log in a message
_TO_LOCK = 3.0  # seconds, because jobs of a sweep that has ended test its lock now and then


@contextmanager
def own_directory(directory: Path) -> Iterator[None]:
    """Hold the lock of this sweep's directory while the block runs. Raises ValueError where another sweep holds it."""
    (directory / STATE).mkdir(parents=True, exist_ok=True)
    with (directory / STATE / LOCK).open("a+", encoding="utf-8") as stream:
        deadline = time.monotonic() + _TO_LOCK
        while not try_lock(stream):
            if time.monotonic() > deadline:
                stream.seek(0)
                raise ValueError(
                    f"a sweep is at work in {directory} (process {stream.read().strip() or 'unknown'}); wait for it, "
                    "stop it, or choose another name"
                )
            time.sleep(0.1)
        stream.truncate(0)
        stream.write(f"{os.getpid()} on {os.uname().nodename}")
        stream.flush()
        (directory / STOP).unlink(missing_ok=True)
        yield


def write_jobs(directory: Path, jobs: Mapping[str, Sequence[Sequence[str]]]) -> None:
    """Write jobs.json. jobs: by name, the arguments of the `python -m pipeline` commands that each runs in turn."""
    write_atomically(directory / STATE / JOBS, json.dumps(jobs, ensure_ascii=False, indent=1))


def launch(
    directory: Path, names: Sequence[str], launcher: Sequence[str], watch: Callable[[], None]
) -> dict[str, int | None]:
    """Run these jobs and return the exit code of each, None for a lost one.

    When this process is asked to stop, it stops the jobs and waits for them.
    launcher: overrides of Hydra's launcher.
    watch: called now and then meanwhile.
    Raises JobFailed where the launcher began no job.
    """
    state = directory / STATE
    for name in names:
        (state / f"{name}.json").unlink(missing_ok=True)
    output = state / "launcher.log"
    process = _start(directory, names, launcher, output)
    try:
        while process.poll() is None:
            watch()
            if stop_asked(directory):  # jobs that a cluster has not begun will not begin
                _end(process)
                break
            time.sleep(INTERVAL)
    except BaseException:
        (directory / STOP).touch()
        _end(process)
        raise
    codes = {name: _code(state / f"{name}.json") for name in names}
    if process.returncode and all(code is None for code in codes.values()):
        raise JobFailed(f"Hydra's launcher began no job; {output} ends:\n{last_lines(output)}")
    return codes


def stop_asked(directory: Path) -> bool:
    """Return whether somebody asked the sweep to stop."""
    return (directory / STOP).exists()


def last_lines(path: Path) -> str:
    """Return the end of a log, indented, for a message."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    lines = [line.rstrip() for line in text.replace("\r", "\n").splitlines() if line.strip()]
    return "\n".join(f"    {line}" for line in lines[-LAST_LINES:]) or "    (nothing was written)"


def describe(code: int | None) -> str:
    """Say in words how a job ended, by its exit code."""
    if code is None:
        return "lost by the launcher"
    if code == STOPPED:
        return "stopped from outside"
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def _start(directory: Path, names: Sequence[str], launcher: Sequence[str], output: Path) -> "subprocess.Popen[bytes]":
    hydra = directory / STATE / "hydra"
    command = [
        *(sys.executable, "-m", "pipeline.sweep.job", "--multirun"),
        *(f"+directory={literal(str(directory))}", f"+job={','.join(map(literal, names))}"),
        *(f"hydra.sweep.dir={literal(str(hydra))}", "hydra.sweep.subdir=.", "hydra.output_subdir=null"),
        *("hydra/job_logging=disabled", *launcher),
    ]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with output.open("wb") as stream:
        return subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,  # Ctrl-C reaches it through the file alone
        )


def _end(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(GRACE + 2 * ABOVE_GRACE)
    except subprocess.TimeoutExpired:
        logger.info("the launcher did not end within %.0f s; killing it", GRACE + 2 * ABOVE_GRACE)
        process.kill()
        process.wait()


def _code(path: Path) -> int | None:
    return int(json.loads(path.read_text(encoding="utf-8"))["code"]) if path.exists() else None
