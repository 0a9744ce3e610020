"""A contender's side of a contest: several training runs stay alive, and one at a time trains a round of steps.

Contest and contender communicate by files in the contender's directory. `ready-<rank>` tells that the first step is
about to begin, `go-<n>` starts round n, and `rows-<rank>.jsonl` gets a line at the end of each round.
"""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

POLL = 0.005  # seconds between two looks for a file


class Turns:
    """The turns of one process. It counts steps, measures rounds, waits between them, and ends the process at last."""

    def __init__(
        self,
        directory: Path,
        rounds: Sequence[int],
        *,
        rank: int,
        sums: Callable[[], Mapping[str, float]],
        before: Callable[[], Mapping[str, Any]],
    ) -> None:
        """Prepare for `rounds`, the number of optimizer steps of each.

        sums: function that returns counts since this process started, such as target tokens; a round's row has their
            growth, and the counts of a run's processes are added up.
        before: function that is called before each round, outside its time, and returns more columns.
        """
        self.directory, self.rank, self.sums, self.before = directory, rank, sums, before
        self.rounds = rounds
        self._number = -1
        self._left = 0
        self._start: dict[str, float] = {}
        self._columns: Mapping[str, Any] = {}

    def step(self) -> None:
        """Count a step. Call this at the beginning of each training step."""
        if self._left == 0:
            if self._number >= 0:
                self._report()
            self._number += 1
            if self._number == len(self.rounds):
                os._exit(0)  # after an exception, a training loop would save, or wait for its peers
            self._wait()
            self._left = self.rounds[self._number]
            self._columns = self.before()
            self._start = {**self.sums(), **_clocks()}
        self._left -= 1

    def _wait(self) -> None:
        (self.directory / f"ready-{self.rank}").touch()
        go = self.directory / f"go-{self._number}"
        while not go.exists():
            time.sleep(POLL)

    def _report(self) -> None:
        now = {**_clocks(), **self.sums()}
        growth = {name: value - self._start[name] for name, value in now.items()}
        about = {"round": self._number, "steps": self.rounds[self._number], "threads": torch.get_num_threads()}
        row = {**about, **self._columns, **growth}
        with (self.directory / f"rows-{self.rank}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def _clocks() -> dict[str, float]:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return {"seconds": time.perf_counter(), "cpu_seconds": time.process_time()}
