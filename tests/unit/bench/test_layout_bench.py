"""The benchmark of tensor parallelism: every way computes the same layer, which it checks itself, and has a time."""

import re
import subprocess
import sys

import pytest

from pipeline.config import ROOT


@pytest.mark.long
def test_every_way_gives_the_same_layer_and_has_a_time():
    command = [sys.executable, "-m", "bench.layout", "--dim", "32", "--hidden", "64", "--tokens", "32", "--rounds", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"(?m)^(layer|feed-forward), (.*?)  +[\d.]+ ms +[\d.]+ ms wall +[\d.]+ [\d.]+$", done.stdout)
    assert [kind for kind, _ in rows] == ["layer"] * 3 + ["feed-forward"] * 2
