"""`make` commands of the documentation, and what they give to the commands below them."""

import shlex
import subprocess

from pipeline.commands.table import find_command
from tests.conftest import ROOT


def words_of(command: str) -> tuple[str, list[str]]:
    """Return the target of a `make` command and the overrides that it gives to `python -m pipeline <target>`."""
    words = ["make", "--dry-run", "--no-print-directory", *shlex.split(command)[1:]]
    lines = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    _, _, module, target, *words = shlex.split(next(line for line in reversed(lines) if " -m " in line))
    assert module == "pipeline"
    return target, find_command(target).overrides(words)


def overrides_of(target: str, command: str) -> list[str]:
    """Return the overrides of a `make` command, which must be of this target."""
    actual, overrides = words_of(command)
    assert actual == target
    return overrides
