"""A command ends in the right way when it is asked to stop, with real processes and signals."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.conftest import ROOT

COMMAND = """
import sys
from pathlib import Path
from pipeline.ending import handle_signals, run_to_end
from pipeline.jobs import launch

def action():
    job = {"error": sys.argv[2]}
    where = Path(sys.argv[1])
    launch.GRACE = 0.5
    launch.launch("tests.unit.jobs.stopping_worker", job, directory=where, processes=1, threads=1, title="job")

handle_signals()
sys.exit(run_to_end(action))
"""


@pytest.mark.parametrize(
    ("number", "error", "code"),
    [
        (signal.SIGTERM, "", 75),
        (signal.SIGINT, "", 130),
        (signal.SIGTERM, "[Errno 28] No space left on device", 1),
        (signal.SIGINT, "[Errno 28] No space left on device", 1),
        (signal.SIGTERM, "endless", 1),
        (signal.SIGTERM, "early", 75),
        (signal.SIGUSR1, "early", 75),
    ],
)
def test_only_work_that_was_saved_may_be_queued_again(tmp_path, number, error, code):
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(tmp_path), error], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 30
    while not (tmp_path / "ready").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    if number == signal.SIGUSR1:  # as a scheduler does, to all processes
        os.kill(int((tmp_path / "pid").read_text()), number)
    os.kill(process.pid, number)
    _, output = process.communicate(timeout=30)
    assert process.returncode == code, output
    if error == "endless":
        assert "error: job: process 0 of 1 was killed before it had saved its work (after 0.5 s" in output
    elif code == 1:
        assert f"error: job: process 0 of 1 failed: {error}; what was under way is not saved" in output
    else:
        assert "the same command goes on from here" in output
