"""Tasks of the tests; other processes import them from here."""

import hashlib
import logging
import os
import signal
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pipeline.tasks import run_once


@dataclass(frozen=True)
class Lines:
    """start, stop: lines of a file. out: where the task keeps what it found; beside it, a line a run in `ran`."""

    file: str
    start: int
    stop: int
    out: str = ""
    die: str = ""  # the task kills itself unless this file exists


def digest_lines(lines: Lines) -> list[int]:
    """Return the number of lines, and the sum of their hashes. Both add up over shards."""
    rows = 0
    total = 0
    with Path(lines.file).open("rb") as stream:
        for line in islice(stream, lines.start, lines.stop):
            rows += 1
            total += int.from_bytes(hashlib.blake2b(line, digest_size=6).digest(), "little")
    return [rows, total]


def digest_once(lines: Lines) -> list[int]:
    def work(out: Path) -> list[int]:
        with Path(lines.out).with_name("ran").open("a") as ran:
            ran.write(f"{lines.start}\n")
        if lines.die and not Path(lines.die).exists():
            Path(lines.die).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        (out / "kept").write_text(str(lines.start))
        return digest_lines(lines)

    digest: list[int] = run_once(Path(lines.out), work)
    return digest


def place(_: object) -> tuple[int, int, str]:
    """Which process this is, of which session, and how many threads Arrow takes."""
    import pyarrow

    return os.getpid(), os.getsid(0), f"{pyarrow.cpu_count()} {pyarrow.io_thread_count()}"


def warn(number: int) -> int:
    logging.getLogger("pipeline.corpus").warning("rows %d are few", number)
    return number


class UnpicklableError(Exception):
    def __init__(self, file: str, line: int) -> None:
        super().__init__(f"{file}:{line}")


def fail(how: str) -> None:
    if how == "value":
        raise ValueError("data.tsv:7: 3 fields where 2 were expected; fix the line")
    if how == "disk":
        Path("/dev/full").write_text("x" * 100_000)
    if how == "own":
        raise UnpicklableError("data.tsv", 7)
    if how == "exit":
        raise SystemExit(3)


def warn_and_fail(how: str) -> None:
    warn(3)
    fail(how)


def fail_or_wait(directory: str) -> None:
    """The one that is given a directory waits in it, for long; the other fails when that has begun."""
    mark = Path(directory.removeprefix("fail "))
    if directory.startswith("fail "):
        while not list(mark.iterdir()):
            time.sleep(0.01)
        raise ValueError("the first error")
    wait_in(directory)


def wait_in(directory: str) -> None:
    (Path(directory) / str(os.getpid())).touch()
    time.sleep(600)


def kill_own_process(number: int) -> int:
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def unpicklable_result(_: object) -> object:
    return lambda: None
