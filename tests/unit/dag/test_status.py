"""status.json: what the running command writes at every turn and end, and what a reader makes of it."""

import json
import logging
import os
import platform
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipeline import ending
from pipeline.config import ROOT
from pipeline.dag.stage import Stage
from pipeline.dag.status import STATUS, read_status
from pipeline.dag.status_file import StatusFile, recorded
from pipeline.dag.store import Store
from pipeline.jobs.launch import JobFailed
from pipeline.stopping import Stopped


def stage(run, *, name="count", label="", config=None):
    return Stage(name=name, version=1, config=config or {}, run=run, label=label, resumable=True)


def write(out: Path) -> None:
    (out / "data.txt").write_text("a")


def states(directory):
    return [(stage_status.title, stage_status.state) for stage_status in read_status(directory).stages]


def test_a_run_that_nobody_began_has_no_status(tmp_path):
    assert read_status(tmp_path) is None


def test_each_stage_is_told_as_it_begins_and_ends_and_what_is_there_already_is_not(tmp_path):
    looks = []
    run = tmp_path / "runs" / "mine"

    def look(out: Path) -> None:
        write(out)
        looks.append((read_status(run).state, states(run)))

    Store(tmp_path).get(stage(write, name="there"))
    with recorded(run) as status:
        store = Store(tmp_path, status)
        store.get(stage(write, name="there"))
        store.get(stage(look, label="de-en"))
        store.get(stage(look, name="next"))
    assert looks == [
        ("running", [("count de-en", "running")]),
        ("running", [("count de-en", "done"), ("next", "running")]),
    ]
    status_read = read_status(run)
    assert (status_read.state, status_read.pid, status_read.host, status_read.error) == (
        "done",
        os.getpid(),
        platform.node(),
        "",
    )
    assert [stage_status.state for stage_status in status_read.stages] == ["done", "done"]
    assert status_read.started <= status_read.stages[0].started <= status_read.updated
    assert 0 <= status_read.stages[0].seconds <= status_read.seconds < 60


def test_a_later_command_replaces_the_status(tmp_path):
    for name in ("one", "two"):
        with recorded(tmp_path / "run") as status:
            Store(tmp_path, status).get(stage(write, name=name))
    assert states(tmp_path / "run") == [("two", "done")]


class Interruption(BaseException):
    """A signal becomes such an exception, which is no Exception."""


@pytest.mark.parametrize(
    ("error", "signals", "state", "text"),
    [
        (ValueError("x=1 is wrong; choose 2"), [], "failed", "x=1 is wrong; choose 2"),
        (JobFailed("process 1 of 2 was killed"), [], "failed", "process 1 of 2 was killed"),
        (KeyError("x"), [], "failed", "KeyError: 'x'"),
        (OSError(28, "No space left on device"), [], "failed", "[Errno 28] No space left on device"),
        (Stopped("train"), [], "stopped", ""),
        (Interruption(), [15], "stopped", ""),
        (RuntimeError("what SentencePiece makes of a signal"), [15], "stopped", ""),
    ],
)
def test_every_way_of_ending_is_written(tmp_path, monkeypatch, error, signals, state, text):
    def fail(out: Path) -> None:
        raise error

    monkeypatch.setattr(ending, "signals", signals)
    with pytest.raises(type(error)), recorded(tmp_path / "run") as status:
        Store(tmp_path, status).get(stage(fail))
    status_read = read_status(tmp_path / "run")
    assert (status_read.state, status_read.error) == (state, text)
    assert status_read.stages[0].state == (
        "failed" if isinstance(error, Exception) and error.args != ("train",) else "stopped"
    )


def test_work_that_could_not_be_saved_is_no_orderly_stop(tmp_path, monkeypatch):
    monkeypatch.setattr(ending, "signals", [15])
    monkeypatch.setattr(ending, "unsaved", ["train moe: process 0 of 2 failed: No space left"])
    with pytest.raises(Interruption), recorded(tmp_path):
        raise Interruption
    assert read_status(tmp_path).error == "train moe: process 0 of 2 failed: No space left"
    assert read_status(tmp_path).state == "failed"


def test_a_directory_that_cannot_be_written_is_an_error_before_work(tmp_path):
    (tmp_path / "runs").write_text("")
    with pytest.raises(ValueError, match=r"cannot write to .*set runtime.runs"), recorded(tmp_path / "runs" / "x"):
        raise AssertionError("the block ran")


def test_a_full_disk_costs_the_status_and_not_the_run(tmp_path, caplog):
    """/dev/full gives the real error of a full disk."""
    caplog.set_level(logging.WARNING)
    with recorded(tmp_path / "run") as status:
        (tmp_path / "run" / f"{STATUS}.tmp").symlink_to("/dev/full")
        artifact = Store(tmp_path, status).get(stage(write))
    assert (artifact.path / "data.txt").exists()
    assert len(caplog.records) == 1
    assert "status.json could not be written" in caplog.text
    assert states(tmp_path / "run") == [("count", "done")]


def test_what_is_left_of_many_systems_counts_down(tmp_path):
    with recorded(tmp_path) as status:
        status.batch("bilingual models trained", num_done=3, total=7, seconds_left=100.0)
        time.sleep(0.05)
        status_read = read_status(tmp_path).batch
        assert (status_read.what, status_read.num_done, status_read.total) == ("bilingual models trained", 3, 7)
        assert 40 < status_read.seconds_left <= 99.95
        status.batch("bilingual models trained", num_done=7, total=7, seconds_left=0.0)
    assert read_status(tmp_path).batch.seconds_left == 0


KILLED = """
import sys, time
from pathlib import Path
from pipeline.dag.stage import Stage
from pipeline.dag.store import Store
from pipeline.dag.status_file import recorded
run = Path(sys.argv[1])
with recorded(run) as status:
    Store(run, status).get(Stage(name="train", version=1, config={}, run=lambda out: time.sleep(60), label="moe"))
"""


def test_a_command_that_was_killed_is_lost(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT)
    try:
        deadline = time.monotonic() + 30
        while (status_read := read_status(tmp_path)) is None or not status_read.stages:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert (status_read.state, status_read.pid, states(tmp_path)) == (
            "running",
            process.pid,
            [("train moe", "running")],
        )
    finally:
        process.kill()
    deadline = time.monotonic() + 10
    while read_status(tmp_path).state == "running" and time.monotonic() < deadline:  # then it is a zombie
        time.sleep(0.01)
    assert (read_status(tmp_path).state, states(tmp_path)) == ("lost", [("train moe", "lost")])
    process.wait()
    assert read_status(tmp_path).state == "lost"


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "running"),
        ({"started": (datetime.now(UTC) - timedelta(days=30)).isoformat()}, "lost"),  # its number is another's now
        ({"pid": 1 << 22}, "lost"),
        ({"pid": 1 << 22, "host": "another"}, "running"),  # nobody here can say
    ],
)
def test_a_process_is_known_by_its_host_number_and_age(tmp_path, changes, state):
    StatusFile(tmp_path)
    record = json.loads((tmp_path / STATUS).read_text())
    (tmp_path / STATUS).write_text(json.dumps({**record, **changes}))
    assert read_status(tmp_path).state == state


def test_a_stage_that_another_process_makes_is_waited_for(tmp_path):
    """Two stores, as two processes have them."""
    beginning, go_on = threading.Event(), threading.Event()

    def slow(out: Path) -> None:
        beginning.set()
        go_on.wait(20)
        write(out)

    other = threading.Thread(target=lambda: Store(tmp_path).get(stage(slow)))
    other.start()
    beginning.wait(20)
    status = StatusFile(tmp_path)
    own_thread = threading.Thread(target=lambda: Store(tmp_path, status).get(stage(slow)))
    own_thread.start()
    deadline = time.monotonic() + 20
    while not states(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert states(tmp_path) == [("count", "waiting")]
    go_on.set()
    own_thread.join()
    other.join()
    assert states(tmp_path) == [("count", "reused")]


def test_threads_of_one_run_that_need_the_same_stage(tmp_path):
    """It is one stage, done by this command."""
    status = StatusFile(tmp_path)
    beginning = threading.Event()

    def slow(out: Path) -> None:
        beginning.set()
        time.sleep(0.3)
        write(out)

    threads = [threading.Thread(target=lambda: Store(tmp_path, status).get(stage(slow))) for _ in range(2)]
    threads[0].start()
    beginning.wait(20)
    threads[1].start()
    for thread in threads:
        thread.join()
    assert states(tmp_path) == [("count", "done")]
