"""Speed of translation: the first lines of the own test sets, by each system with the search of its run, in turns."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from bench.decode.choice import test_set, translator_of
from bench.experiment.contrasts import load_systems
from bench.output import Row, aligned, device_name, number
from pipeline.dag.store import Store
from pipeline.decode.text.line import Line
from pipeline.decode.text.translator import Translator
from pipeline.finished_run import FinishedRun
from pipeline.jobs.matmul import choose_matmul

COLUMNS = (
    *("system", "run", "pairs", "sentences", "rounds", "threads", "precision", "beam"),
    *("sentences_per_second", "slowest", "fastest", "cpu"),
)


def measure(
    directories: Sequence[Path], artifacts: Path, *, sentences: int, rounds: int, threads: int
) -> list[dict[str, Any]]:
    """Return a row for each system: the median speed of its first run over rounds, and the slowest and the fastest.

    Every round lets each system translate once, in this process. A round before the first is not counted.

    directories: of finished runs, whose models are still there. Those that differ in the seed alone are one system.
    artifacts: the directory of their models.
    sentences: of each pair's test set.
    threads: of the CPU. Nothing else should run.
    Raises ValueError or OSError if a run or its model is not there.
    """
    torch.set_num_threads(threads)
    choose_matmul()
    rows: list[dict[str, Any]] = []
    contestants: list[tuple[Translator, list[Line]]] = []
    for system in load_systems(directories):
        directory = system.runs[0].directory
        run = FinishedRun.open(directory.name, runs=directory.parent, store=Store(artifacts))
        lines = [line for pair in run.pairs for line in test_set(run, pair, sentences)[0]]
        contestants.append((translator_of(run, run.decode, torch.device("cpu")), lines))
        about = {"system": system.label, "run": directory.name, "pairs": len(run.pairs), "sentences": len(lines)}
        settings = {"threads": threads, "precision": run.decode.precision, "beam": run.decode.beam}
        rows.append({**about, "rounds": rounds, **settings, "cpu": device_name("cpu")})
    speeds: list[list[float]] = [[] for _ in rows]
    for turn in range(rounds + 1):
        for (translator, lines), of_system, row in zip(contestants, speeds, rows, strict=True):
            start = time.perf_counter()
            num_translated = sum(1 for _ in translator.translate(lines))
            seconds = time.perf_counter() - start
            print(f"round {turn}: {row['system']} {seconds:.1f} s", file=sys.stderr, flush=True)
            if turn:
                of_system.append(num_translated / seconds)
    for row, of_system in zip(rows, speeds, strict=True):
        row.update(sentences_per_second=median(of_system), slowest=min(of_system), fastest=max(of_system))
    return rows


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table for a terminal."""
    lines = [["system", "beam", "precision", "sentences/s", "slowest", "fastest"]]
    for row in rows:
        rates = [number(row[name], 1) for name in ("sentences_per_second", "slowest", "fastest")]
        lines.append([row["system"], number(row["beam"]), row["precision"], *rates])
    return aligned(lines, left=["system", "precision"])
