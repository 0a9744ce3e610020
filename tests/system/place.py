"""Where a test session's system tests work, and the commands they give."""

import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pipeline.commands.table import find_command
from pipeline.config import ROOT

# The tests' smoke run trains a third as long as `make train RECIPE=smoke`, and learns to make English words at most.
SHORTER = (
    "train.max_tokens=150000",
    "train.validate_every=40",
    "baselines.tiers=[{up_to:0,vocab:{source_size:2000},train:{max_tokens:40000}}]",
)


@dataclass(frozen=True)
class Place:
    """Artifacts and runs of this test session."""

    root: Path

    def command(self, *overrides, target="train", recipe="smoke"):
        budget = map(shlex.quote, SHORTER) if recipe == "smoke" and target in ("train", "baselines") else ()
        words = [*budget, *overrides, *self.directories]
        settings = [f"RECIPE={recipe}"] if "RECIPE" in find_command(target).settings else []
        return ["make", "--no-print-directory", target, *settings, "ARGS=" + " ".join(words)]

    def direct(self, *overrides):
        """The command below make, whose exit code is its own."""
        return self.python("train", "recipes=smoke", *overrides)

    def python(self, *words):
        return [str(ROOT / ".venv/bin/python"), "-m", "pipeline", *words, *self.directories]

    @property
    def directories(self):
        return [f"runtime.artifacts={self.root}/artifacts", f"runtime.runs={self.root}/runs"]


def run(command, **options):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)
