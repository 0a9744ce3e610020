"""Millions of pairs through every stage of the data: memory is flat, processor time is linear."""

import json
import shutil
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from bench.data.pairs import many_pairs, short_sentences, write_tsv
from pipeline.config import ROOT
from tests.system.data_worker import STAGES

SAMPLE = ROOT / "data" / "sample"
MOST_MEMORY = 1.5 * (1 << 30)
LINEAR = 1.1  # processor time a row, of many rows over few
LINEAR_BESIDE = 1.25  # the same while another process shares the caches
NOISE = 0.2  # seconds of processor time by which two runs of the same work may differ
SMALL = 20_000  # what every process takes to begin with is measured on so many rows
MANIFEST = """
name: many
default_target: "en"
files:
  - {{split: train, format: tsv, path: train.tsv.zst, pair: de-en, rows: {rows}}}
  - {{split: dev, format: multiway_tsv, path: dev.tsv}}
  - {{split: test, format: multiway_tsv, path: test.tsv}}
codes: {{zh_CN: zh-Hans}}
"""


@dataclass(frozen=True)
class Cost:
    """The cost of one stage. seconds: processor time. bytes: memory of the largest process."""

    seconds: float
    bytes: int


class Run:
    """So many pairs, and what each stage takes for them, one process after the other, each of one thread."""

    def __init__(self, rows, root, *overrides):
        self.rows, self.artifacts, self.costs = rows, root / "artifacts", {}
        corpus = root / "corpus"
        corpus.mkdir(parents=True)
        for name in ("dev.tsv", "test.tsv"):
            shutil.copy(SAMPLE / name, corpus)
        sentences = short_sentences(SAMPLE / "train.tsv", "de", "en")
        assert write_tsv(many_pairs(sentences, rows), corpus / "train.tsv.zst") == rows
        (corpus / "manifest.yaml").write_text(MANIFEST.format(rows=rows), encoding="utf-8")
        places = [f"corpus.path={corpus}", f"runtime.artifacts={self.artifacts}"]
        self.overrides = [*places, "pairs=[de-en]", "runtime.data.workers=1", *overrides]
        for stage in STAGES:
            self.measure(stage)
        (encoded,) = (self.artifacts / "encode").glob("*/encode.json")
        kept = json.loads(encoded.read_text(encoding="utf-8"))["splits"]["train"]["rows"]
        assert 0.9 * rows < kept <= rows

    def measure(self, stage):
        """Run a stage anew. The least time counts: other work slows a processor down."""
        shutil.rmtree(self.artifacts / stage, ignore_errors=True)
        command = [sys.executable, "-m", "tests.system.data_worker", stage, *self.overrides]
        process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert process.returncode == 0, process.stderr
        cost = Cost(**json.loads(process.stdout.splitlines()[-1]))
        print(f"{self.rows:,} pairs, {stage}: {cost.seconds:.1f} s, {cost.bytes / 2**20:.0f} MiB")
        assert cost.bytes <= MOST_MEMORY, (self.rows, stage, cost)
        self.costs[stage] = min(cost, self.costs.get(stage, cost), key=lambda cost_of_turn: cost_of_turn.seconds)


def check_linear(stages, start, few, many, *, limit=LINEAR):
    """The processor time of a row does not grow from few to many; what a process takes to begin with is left out.

    Fetching takes a second to begin with and a quarter of one for the few rows, so what noise alone may add counts.
    What looks too much is measured again, twice at most, and pytest's summary says so.
    """
    for stage in stages:
        for measurements_left in (2, 1, 0):
            seconds_at_start = start.costs[stage].seconds
            per_row = [(run.costs[stage].seconds - seconds_at_start) / (run.rows - start.rows) for run in (few, many)]
            times = f"{stage}: {1e6 * per_row[0]:.2f} µs a pair of {few.rows}, {1e6 * per_row[1]:.2f} of {many.rows}"
            print(times)
            if per_row[1] <= limit * (per_row[0] + NOISE / (few.rows - start.rows)):
                break
            if not measurements_left:
                pytest.fail(times)
            warnings.warn(f"{times}; measured again", stacklevel=2)
            for run in (few, many):
                run.measure(stage)


@pytest.mark.quiet
def test_a_million_pairs_take_flat_memory_and_linear_time(tmp_path):
    """The vocabulary of the million alone is trained on as much text as it ever is."""
    fast = "corpus.rules.language=null"  # the slowest rule, which looks at one row at a time
    few = "vocab.sample_lines=5000"
    with ThreadPoolExecutor(2) as pool:
        many = pool.submit(Run, 1_000_000, tmp_path / "many", fast)
        runs = [pool.submit(Run, rows, tmp_path / str(rows), fast, few) for rows in (SMALL, 300_000)]
        measured = [run.result() for run in [*runs, many]]
    check_linear([stage for stage in STAGES if stage != "vocab"], *measured, limit=LINEAR_BESIDE)


@pytest.mark.nightly
@pytest.mark.quiet
def test_ten_million_pairs_take_flat_memory_and_linear_time(tmp_path):
    start, few, _, many = (Run(rows, tmp_path / str(rows)) for rows in (SMALL, 1_000_000, 3_000_000, 10_000_000))
    check_linear(STAGES, start, few, many)
