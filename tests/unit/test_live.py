"""Lines that are redrawn in place, with real terminals and processes."""

import os
import subprocess
import sys

import pytest

from pipeline.config import ROOT
from pipeline.live import is_live, wrapped
from tests.screens import Screen

PROGRAM = """
import logging, os, subprocess, sys, time
from eval.terminal import log_to_terminal
from pipeline.live import live_stderr

log_to_terminal()
with live_stderr() as live:
    live.show(["one", "two"])
    logging.getLogger("x").info("logged")
    os.write(2, b"raw \\x1b[2J")
    os.write(2, b"bytes\\n")
    subprocess.run([sys.executable, "-c", "import sys; print(sys.stderr.isatty(), file=sys.stderr)"])
    time.sleep(0.3)
    live.show(["three", "four"], above=["two is over"])
    holder = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"])
    print("not ended by a line feed", end="", file=sys.stderr)
print("after", file=sys.stderr)
holder.kill()
"""


def test_all_output_goes_above_the_lines_that_are_redrawn():
    """Escape sequences of others are written out. A process that keeps the output open delays nothing."""
    screen = Screen(80, 24)
    command = [sys.executable, "-c", PROGRAM]
    process = subprocess.run(command, cwd=ROOT, stderr=screen.theirs, timeout=60, check=True)
    os.close(screen.theirs)
    screen.close()
    assert process.returncode == 0
    above = ["logged", r"raw \x1b[2Jbytes", "False", "two is over", "not ended by a line feed"]
    assert screen.rows() == [*above, "three", "four", "after"]
    assert len(screen.text) < 400


@pytest.mark.parametrize(("term", "live"), [("xterm", True), ("dumb", False)])
def test_a_terminal_without_escape_sequences_has_no_such_lines(monkeypatch, term, live):
    monkeypatch.setenv("TERM", term)
    screen = Screen(80, 24)
    with os.fdopen(screen.theirs, "w") as out:
        assert is_live(out) is live
    with open(os.devnull, "w") as out:  # noqa: PTH123
        assert not is_live(out)


def test_text_is_wrapped_for_a_terminal_alone(tmp_path):
    text = "a sentence of eight words, more than fits"
    screen = Screen(20, 24)
    with os.fdopen(screen.theirs, "w") as out:
        assert wrapped(text, out) == "a sentence of eight\n  words, more than\n  fits"
    with (tmp_path / "file").open("w") as out:
        assert wrapped(text, out) == text
