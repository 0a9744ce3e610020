"""The benchmark of tensor parallelism: every way has a time, and computes the same layer, as the benchmark checks."""

import csv
import subprocess
import sys

from bench.layout.table import judge, table
from pipeline.config import ROOT


def test_every_way_gives_the_same_layer_and_has_a_time(tmp_path):
    out = tmp_path / "layout.csv"
    sizes = ["--dim", "32", "--hidden", "64", "--tokens", "32", "--rounds", "2"]
    command = [sys.executable, "-m", "bench.layout", *sizes, "--out", str(out)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert process.returncode == 0, process.stderr
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["kind"] for row in rows] == ["layer"] * 3 + ["feed-forward"] * 2
    for row in rows:
        assert 0 < float(row["cpu_ratio_least"]) <= float(row["cpu_ratio"]) <= float(row["cpu_ratio_most"])


def test_ratios_are_medians_of_rounds_side_by_side():
    times = {
        "layer, this project": [(1.0, 2.0), (2.0, 4.0), (4.0, 8.0)],
        "layer, another": [(3.0, 2.0), (2.0, 4.0), (6.0, 8.0)],
    }
    base, other = judge(times, {"device": "cpu"})
    assert (base["cpu_ms"], base["cpu_ratio"]) == (2.0, 1.0)
    assert (other["cpu_ratio"], other["cpu_ratio_least"], other["cpu_ratio_most"]) == (1.5, 1.0, 3.0)
    assert (other["wall_ms"], other["wall_ratio"]) == (4.0, 1.0)
    assert "another" in table([base, other])
