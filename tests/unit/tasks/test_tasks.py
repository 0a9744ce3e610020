"""Tasks on processes of this machine: results, errors, and what is left when something ends."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from itertools import pairwise

import psutil
import pytest

from pipeline.stopping import stopping
from pipeline.tasks import DataConfig, TaskFailed, end_workers, run_tasks
from tests.conftest import ROOT
from tests.unit.tasks import work
from tests.unit.tasks.work import Lines

SAMPLE = ROOT / "data" / "sample" / "train.tsv"


@pytest.fixture(scope="module", autouse=True)
def workers_end():
    yield
    end_workers()


@pytest.fixture
def run(tmp_path):
    """Tasks on two workers."""
    return partial(run_tasks, config=DataConfig(workers=2), directory=tmp_path / "log", title="count")


def cut(shards, **more):
    rows = SAMPLE.read_bytes().count(b"\n")
    bounds = [rows * shard // shards for shard in range(shards + 1)]
    return [Lines(str(SAMPLE), start, stop, **more) for start, stop in pairwise(bounds)]


def gone(process, within=10.0):
    """A zombie is gone: the command that would bury it was killed."""
    deadline = time.monotonic() + within
    while psutil.pid_exists(process):
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(process).status() == psutil.STATUS_ZOMBIE:
                return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("shards", [2, 7])
def test_shards_give_what_one_gives_wherever_they_run(tmp_path, workers, shards):
    (whole,) = cut(1)
    digests = run_tasks(
        work.digest_lines, cut(shards), config=DataConfig(workers=workers), directory=tmp_path, title="count"
    )
    assert digests == [work.digest_lines(shard) for shard in cut(shards)]  # in the order of the payloads
    assert [sum(member) for member in zip(*digests, strict=True)] == work.digest_lines(whole)
    assert len(digests) == shards


def test_workers_are_kept_apart_from_the_terminal_and_have_one_thread(run):
    first, again = run(work.place, range(20)), run(work.place, range(20))
    processes = {process for process, _, _ in first + again}
    assert len(processes) <= 2
    assert os.getpid() not in processes
    assert all(session == process for process, session, _ in first)
    assert {threads for _, _, threads in first} == {"1 1"}


def test_askers_in_several_threads_share_the_workers(run):
    digests = {}

    def ask(name):
        digests[name] = run(work.place, range(4))

    threads = [threading.Thread(target=ask, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(digests) == [0, 1, 2, 3]
    assert len({process for places in digests.values() for process, _, _ in places}) <= 2


def test_workers_that_were_ended_start_anew(run):
    before = {process for process, _, _ in run(work.place, range(8))}
    end_workers()
    assert all(gone(process) for process in before)
    assert not before & {process for process, _, _ in run(work.place, range(8))}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ("value", ValueError, r"^data.tsv:7: 3 fields where 2 were expected; fix the line$"),
        ("disk", OSError, "No space left"),
    ],
)
def test_an_error_of_a_task_is_raised_as_it_is(tmp_path, workers, how, error, message):
    with pytest.raises(error, match=message) as raised:
        run_tasks(work.fail, ["no", how, "no"], config=DataConfig(workers=workers), directory=tmp_path, title="count")
    if how == "disk":
        assert raised.value.errno == 28
    if workers == 2:  # where it was raised in the other process
        assert "work.py" in str(raised.value.__cause__)


def test_errors_that_cannot_travel_come_as_text(run):
    with pytest.raises(RuntimeError, match=r"UnpicklableError: data.tsv:7"):
        run(work.fail, ["own"])
    with pytest.raises(SystemExit):
        run(work.fail, ["exit"])


def test_an_error_ends_the_other_tasks(run, tmp_path):
    with pytest.raises(ValueError, match="the first error"):
        run(work.fail_or_wait, [str(tmp_path), f"fail {tmp_path}", *[str(tmp_path)] * 5])
    assert all(gone(int(path.name), within=0) for path in tmp_path.iterdir())
    assert run(work.kill_own_process, [1, 3]) == [1, 3]  # by a new worker where one was ended


def test_a_killed_worker_is_an_error_that_names_the_task(run):
    with pytest.raises(TaskFailed, match=r"count: task 3 of 4: its process was killed by SIGKILL \(out of memory\?\);"):
        run(work.kill_own_process, range(4))
    assert run(work.kill_own_process, [4, 5, 6]) == [4, 5, 6]


def test_a_worker_that_is_killed_while_it_waits_is_replaced(run):
    for process in {process for process, _, _ in run(work.place, range(8))}:
        os.kill(process, signal.SIGKILL)
        os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)  # its last thread too
    assert len(run(work.place, range(8))) == 8


@pytest.mark.parametrize("workers", [1, 2])
def test_what_cannot_be_sent_is_refused(tmp_path, workers):
    ask = partial(run_tasks, config=DataConfig(workers=workers), directory=tmp_path, title="count")
    with pytest.raises(ValueError, match=r"count: task 1 cannot be sent .* at the top level of an importable module"):
        ask(lambda n: n, [1])
    with pytest.raises(ValueError, match=r"count: task 2 cannot be sent .* the payload be plain data"):
        ask(work.warn, [1, threading.Lock()])


def test_a_result_that_cannot_be_sent_is_an_error(run):
    with pytest.raises((AttributeError, TypeError, RuntimeError), match="pickle"):
        run(work.unpicklable_result, [1])


def test_what_tasks_log_is_logged_here(run, caplog):
    caplog.set_level(logging.WARNING)
    run(work.warn, [3, 4])
    assert sorted(record.getMessage() for record in caplog.records) == ["rows 3 are few", "rows 4 are few"]
    assert {record.name for record in caplog.records} == {"pipeline.corpus"}


def test_finished_tasks_are_not_run_again(run, tmp_path):
    shards = [
        Lines(str(SAMPLE), start, start + 10, str(tmp_path / str(start)), str(tmp_path / "died")) for start in (0, 10)
    ]
    with pytest.raises(TaskFailed, match="its process was killed"):
        run(work.digest_once, shards[:1])
    assert list(tmp_path.glob("0.*.partial"))
    first = run(work.digest_once, shards)
    assert first == [work.digest_lines(shard) for shard in shards]
    assert run(work.digest_once, shards) == first
    assert (tmp_path / "ran").read_text().split().count("0") == 2
    assert (tmp_path / "ran").read_text().split().count("10") == 1
    assert (tmp_path / "10" / "kept").read_text() == "10"
    assert not list(tmp_path.glob("*.partial"))


COMMAND = """
import sys
from functools import partial
from pathlib import Path
from pipeline.ending import handle_signals, run_to_end
from pipeline.tasks import DataConfig, run_tasks, side_by_side
from tests.unit.tasks.work import wait_in

where, threads = sys.argv[1], int(sys.argv[2])

def one():
    run_tasks(wait_in, [where] * 3, config=DataConfig(workers=2), directory=Path(where) / "log", title="waiting")

handle_signals()
sys.exit(run_to_end(lambda: side_by_side([one] * threads, at_once=threads)))
"""


@pytest.fixture(params=[1, 3])
def command(tmp_path, request):
    """A command, leader of the terminal's foreground group as it were, and the two workers that are at work for it."""
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(tmp_path), str(request.param)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 30
    while len(workers := [int(path.name) for path in tmp_path.iterdir()]) < 2:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    yield process, workers
    process.kill()
    process.wait()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_a_signal_ends_the_command_and_its_workers(command, number, code):
    process, workers = command
    for member in workers if number == signal.SIGTERM else []:  # as a scheduler may do it, to all at once
        os.kill(member, number)
    os.killpg(process.pid, number)
    _, output = process.communicate(timeout=20)
    assert process.returncode == code, output
    assert output.splitlines() == [
        "stopping: saving what is under way …",
        "stopped; the same command goes on from here",
    ]
    assert all(gone(worker, within=0) for worker in workers)


@pytest.mark.parametrize("command", [1], indirect=True)
def test_workers_end_when_their_command_is_killed(command):
    process, workers = command
    process.kill()
    assert all(gone(worker) for worker in workers)


def test_a_process_that_was_asked_to_stop_starts_no_tasks(run, tmp_path):
    from pipeline.stopping import Stopped

    stopping.set()
    try:
        for workers in (1, 2):
            with pytest.raises(Stopped):
                run(work.wait_in, [str(tmp_path)], config=DataConfig(workers=workers))
    finally:
        stopping.clear()
    assert not list(tmp_path.iterdir())
