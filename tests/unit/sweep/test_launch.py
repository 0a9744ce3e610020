"""Jobs of a sweep through every launcher of Hydra's that this machine can try out, with small real commands."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from pipeline.config import ROOT
from pipeline.jobs.launch import STOPPED, JobFailed
from pipeline.sweep.job import STATE, STOP, run_job
from pipeline.sweep.launch import describe, last_lines, launch, own_directory, write_jobs

JOBS = {"helps": [["help"]], "two": [["help"], ["nonsense"], ["help"]], "wrong": [["trian"]]}


def ignored():
    pass


@pytest.mark.parametrize("launcher", ["joblib", "submitit_local"])
def test_jobs_leave_their_codes_and_logs(tmp_path, launcher):
    """A command that fails ends its own job and no other."""
    with own_directory(tmp_path):
        write_jobs(tmp_path, JOBS)
        codes = launch(tmp_path, list(JOBS), [f"hydra/launcher={launcher}"], ignored)
    assert codes == {"helps": 0, "two": 2, "wrong": 2}
    assert "usage: python -m pipeline" in (tmp_path / "helps.log").read_text()
    assert "target nonsense does not exist" in last_lines(tmp_path / "two.log")
    assert (tmp_path / "two.log").read_text().count("UTC: python -m pipeline help") == 1, "the third never began"
    assert {path.name for path in tmp_path.iterdir()} == {STATE, "helps.log", "two.log", "wrong.log"}


def test_a_launcher_that_cannot_begin_is_an_error_with_its_last_words(tmp_path):
    with own_directory(tmp_path):
        write_jobs(tmp_path, JOBS)
        with pytest.raises(JobFailed, match=r"(?s)began no job; .*launcher.log ends:.*n_jobs"):
            launch(tmp_path, ["helps"], ["hydra.launcher.n_jobs=2"], ignored)


def test_a_stopped_sweep_begins_no_job(tmp_path):
    with own_directory(tmp_path):
        write_jobs(tmp_path, JOBS)
        (tmp_path / STOP).touch()
        assert run_job(tmp_path, "helps") == STOPPED
        assert (tmp_path / "helps.log").read_text() == ""
    with own_directory(tmp_path):
        assert not (tmp_path / STOP).exists(), "the same command goes on"


def test_a_job_without_a_sweep_does_not_begin(tmp_path):
    """A cluster may start a job after the sweep that queued it has ended."""
    with own_directory(tmp_path):
        write_jobs(tmp_path, JOBS)
    assert run_job(tmp_path, "helps") == STOPPED


def test_two_sweeps_do_not_share_a_directory(tmp_path):
    with own_directory(tmp_path), pytest.raises(ValueError, match=rf"at work in .* \(process {os.getpid()} on "):
        own_directory(tmp_path).__enter__()


WORK = """
import sys
from pathlib import Path
from pipeline.sweep.launch import launch, own_directory, write_jobs

directory = Path(sys.argv[1])
with own_directory(directory):
    write_jobs(directory, {"slow": [["serve"]]})
    launch(directory, ["slow"], [], lambda: None)
"""


def test_a_job_ends_with_a_sweep_that_was_killed(tmp_path):
    """Its command, too, though it has a session of its own: here one that waits for another process at the point."""
    (tmp_path / STATE).mkdir()
    with (tmp_path / STATE / "slow.lock").open("a+") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        sweep = subprocess.Popen([sys.executable, "-c", WORK, str(tmp_path)], cwd=ROOT)
        wait_for(lambda: (tmp_path / "slow.log").exists() or children(sweep.pid))
        (app,) = children(sweep.pid)
        wait_for(lambda: open_files(app) & {str(tmp_path / STATE / "slow.lock")})
        os.kill(sweep.pid, signal.SIGKILL)
        sweep.wait()
        wait_for(lambda: (tmp_path / STATE / "slow.json").exists())
    assert json.loads((tmp_path / STATE / "slow.json").read_text()) == {"code": STOPPED}
    wait_for(lambda: not alive(app))


STARTER = """
import os, subprocess, sys
from pathlib import Path

LONG = "import sys, time, pipeline.__main__ as m; from pipeline.commands.table import Command;"
LONG += " Command.__call__ = lambda self, words: (print('at work', file=sys.stderr), time.sleep(60));"
LONG += " sys.exit(m.main(['config']))"
with Path(sys.argv[1]).open("w") as log:
    environment = {**os.environ, "BABELSHARD_PARENT": str(os.getpid()), "PYTHONUNBUFFERED": "1"}
    child = subprocess.Popen([sys.executable, "-c", LONG], env=environment, stderr=log, start_new_session=True)
print(child.pid, flush=True)
sys.stdin.read()
"""


def test_a_command_ends_in_order_when_its_starter_is_gone(tmp_path):
    """As a run does whose job was killed."""
    log = tmp_path / "log"
    command = [sys.executable, "-c", STARTER, str(log)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as starter:
        child = int(starter.stdout.readline())
        wait_for(lambda: "at work" in log.read_text())
        starter.kill()
    wait_for(lambda: not alive(child))
    assert "stopped; the same command goes on from here" in log.read_text()


def test_how_a_job_ended_in_words():
    assert [describe(code) for code in (1, -9, STOPPED, None)] == [
        "exit code 1",
        "killed by signal 9",
        "stopped from outside",
        "lost by the launcher",
    ]


def children(pid):
    listing = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in listing.stdout.split()]


def open_files(pid):
    paths = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since it was listed
            paths.add(str(entry.readlink()))
    return paths


def alive(pid):
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return bool(state.stdout.strip()) and not state.stdout.startswith("Z")


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
