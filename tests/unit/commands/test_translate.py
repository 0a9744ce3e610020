"""`make translate` reads its words and lines of JSON before it loads a model."""

import subprocess
import sys
from collections import Counter

import pytest

from pipeline.commands.translate import _Parser, load_translate
from pipeline.config import ROOT

WORDS = ["run=demo", "pair=de-en", "format=json"]


def test_any_number_of_processes_has_whole_models():
    assert load_translate([*WORDS, "runtime.processes=1"]).runtime.processes == 1
    assert load_translate([*WORDS, "runtime.processes=3"]).runtime.ep == 1


@pytest.mark.parametrize("content", [b"[" * 200_000, b"9" * 5000, b"{", b""])
def test_what_is_no_json_is_told_with_its_line(content):
    parser = _Parser(load_translate(WORDS), None, Counter())
    with pytest.raises(ValueError, match=r"^standard input, line 7 is no JSON \(.*\); write "):
        parser.json(6, content)


GUARDED = """
import os, signal, sys
from pipeline import __main__ as command
from pipeline.commands.table import Command

def full(_):
    os.write(os.open("/dev/full", os.O_WRONLY), b"line")

def stopped(_):
    signal.raise_signal(signal.SIGTERM)

action = globals()[sys.argv[2]]
Command.__call__ = lambda self, words: action(words)
sys.exit(command.main(sys.argv[1:2]))
"""


@pytest.mark.parametrize(
    ("target", "how", "code", "message"),
    [
        ("translate", "full", 1, "error: No space left on device; make room or fix permissions, then run the same "),
        ("serve", "stopped", 143, ""),
    ],
)
def test_commands_that_save_nothing_promise_nothing(target, how, code, message):
    process = subprocess.run([sys.executable, "-c", GUARDED, target, how], cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == code
    assert process.stderr[: len(message) or None] == message
