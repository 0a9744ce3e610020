"""`make` commands of the documentation, and what they give to the commands below them."""

import shlex
import subprocess
import sys
from functools import cache

from pipeline.commands.table import find_command
from tests.conftest import ROOT


def words_of(command: str) -> tuple[str, list[str]]:
    """Return the target of a `make` command and the overrides that it gives to `python -m pipeline <target>`."""
    target, *words = _dry_run(command)
    return target, find_command(target).overrides(words)


@cache
def _dry_run(command: str) -> tuple[str, ...]:
    """Return the target and the words that a `make` command gives to `python -m pipeline`."""
    words = ["make", "--dry-run", "--no-print-directory", f"PYTHON={sys.executable}", *shlex.split(command)[1:]]
    lines = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    _, _, module, *words = shlex.split(next(line for line in reversed(lines) if " -m " in line))
    assert module == "pipeline"
    return tuple(words)


def overrides_of(target: str, command: str) -> list[str]:
    """Return the overrides of a `make` command, which must be of this target."""
    actual, overrides = words_of(command)
    assert actual == target
    return overrides
