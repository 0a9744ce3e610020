"""What `make translate` makes of its words and of lines of JSON, before a model is there."""

import subprocess
import sys
from collections import Counter

import pytest

from pipeline.config import ROOT
from pipeline.translate import _Parser, load_translate

WORDS = ["run=demo", "pair=de-en", "format=json"]


def test_any_number_of_processes_has_whole_models():
    assert load_translate([*WORDS, "runtime.processes=1"]).runtime.processes == 1
    assert load_translate([*WORDS, "runtime.processes=3"]).runtime.ep == 1


@pytest.mark.parametrize("content", [b"[" * 200_000, b"9" * 5000, b"{", b""])
def test_what_is_no_json_is_told_with_its_line(content):
    parser = _Parser(load_translate(WORDS), None, None, Counter())
    with pytest.raises(ValueError, match=r"^standard input, line 7 is no JSON \(.*\); write "):
        parser.json(6, content)


GUARDED = """
import os, signal, sys
from pipeline import __main__ as command

def full(_):
    os.write(os.open("/dev/full", os.O_WRONLY), b"line")

def stopped(_):
    signal.raise_signal(signal.SIGTERM)

setattr(command, sys.argv[1], globals()[sys.argv[2]])
sys.exit(command.main(sys.argv[1:2]))
"""


@pytest.mark.parametrize(
    ("target", "how", "code", "said"),
    [
        ("translate", "full", 1, "error: No space left on device; make room or fix permissions, then run the same "),
        ("serve", "stopped", 143, ""),
    ],
)
def test_commands_that_save_nothing_promise_nothing(target, how, code, said):
    done = subprocess.run([sys.executable, "-c", GUARDED, target, how], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == code
    assert done.stderr[: len(said) or None] == said
