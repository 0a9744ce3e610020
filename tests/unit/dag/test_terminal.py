"""A command on a real terminal, with real stages and processes: its lines while it runs, and after Ctrl-C."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from pipeline.config import ROOT
from tests.screens import Screen

PROGRAM = """
import logging, sys, time
from pathlib import Path
from eval.terminal import log_to_terminal
from pipeline.config import load_config
from pipeline.dag.stage import Stage
from pipeline.dag.store import Store
from pipeline.dag.terminal import watched
from pipeline.ending import handle_signals, run_to_end
from pipeline.jobs.launch import launch

root, how = Path(sys.argv[1]), sys.argv[2:]
log_to_terminal()
handle_signals()
config = load_config(["recipes=smoke", "name=mine", f"runtime.runs={root / 'runs'}", *how])
store = Store(root / "artifacts")

def clean(out):
    logging.getLogger("pipeline.corpus").info("a detail")
    logging.getLogger("pipeline.corpus").warning("pair de-en: only 5 dev rows")
    time.sleep(1.5)
    (out / "rows").touch()

def train(out):
    job = {"train": {"max_steps": 1, "max_tokens": 0}}
    launch("tests.unit.dag.logging_worker", job, directory=out / "log", processes=1, threads=1, title="train moe")

def score(out):
    (root / "scoring").touch()
    while True:
        time.sleep(0.05)

def make(name, run):
    store.get(Stage(name=name, version=1, config={}, run=run, label="mine"))

def action():
    with watched(config, ("fetch", "clean", "train", "score")) as store.listener:
        make("clean", clean)
        make("train", train)
        logging.getLogger("pipeline.dag.run").info("a line for every user")
        make("score", score)

sys.exit(run_to_end(action))
"""


@pytest.fixture
def interrupted(tmp_path, request):
    """The lines of a command that got Ctrl-C in its last step, and the command's other output."""
    screen = Screen(60, 24)
    environment = {**os.environ, "TERM": "xterm", **request.param.get("environment", {})}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), *request.param.get("how", [])]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=screen.theirs)
    os.close(screen.theirs)
    deadline = time.monotonic() + 120
    while not (tmp_path / "scoring").exists():
        assert time.monotonic() < deadline, screen.text
        assert process.poll() is None, screen.text
        time.sleep(0.05)
    time.sleep(1.5)  # until the step is on the terminal
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    screen.close()
    return screen


@pytest.mark.parametrize("interrupted", [{}, {"environment": {"NO_COLOR": "1"}}], ids=["", "NO_COLOR"], indirect=True)
def test_a_line_a_step_with_warnings_above_it_and_a_clean_end(interrupted):
    rows = [re.sub(r"\d+ s", "0 s", row) for row in interrupted.rows()]
    assert rows == [
        "pair de-en: only 5 dev rows",
        "[1/4] fetch: up to date",
        "[2/4] clean: 0 s",
        "warning: the disk is full",
        "a line for every user",
        "[3/4] train: 0 s",
        "stopping: saving what is under way …",
        "[4/4] score: stopped after 0 s",
        "stopped; the same command goes on from here",
    ]
    assert re.search(r"\[2/4\] clean: \d s so far\r\n\d s so far\r\n", interrupted.text), "while it ran"
    assert re.search(r"\[4/4\] score: \d s so far", interrupted.text)
    escapes = set(re.findall(r"\x1b[^A-Za-z]*[A-Za-z]", interrupted.text))
    assert escapes <= {"\x1b[1F", "\x1b[2F", "\x1b[J"}
    assert max(map(len, interrupted.text.split("\r\n"))) < 80


@pytest.mark.parametrize(
    "interrupted", [{"how": ["runtime.verbose=true"]}, {"environment": {"TERM": "dumb"}}], ids=str, indirect=True
)
def test_every_line_is_shown_if_the_user_wants_so_or_the_terminal_can_do_no_better(interrupted):
    rows = interrupted.text.replace("\r\n", "\n").splitlines()
    for line in ("clean mine: running", "a detail", "train moe: step 1", "warning: the disk is full"):
        assert line in rows
    assert rows[-1] == "stopped; the same command goes on from here"
    assert "\x1b" not in interrupted.text
    assert "\r" not in interrupted.text.replace("\r\n", "")
