"""A contender's side of a contest: several training runs stay alive, and one at a time trains a round of steps.

Files in the contender's directory carry the turns: `ready-<rank>` says that the first step is about to begin, `go-<n>`
lets round n begin, and `rows-<rank>.jsonl` gets a line at its end.
"""

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

POLL = 0.005  # seconds


class Round(NamedTuple):
    """steps: optimizer steps. threads: of each process."""

    steps: int
    threads: int


class Turns:
    """Counts the steps of one process, measures rounds, waits between them, and ends the process after the last."""

    def __init__(self, directory: Path, rounds: Sequence[Sequence[int]], *, rank: int, constants: Mapping[str, Any]):
        self.directory, self.rank, self.constants = directory, rank, dict(constants)
        self.rounds = [Round(*each) for each in rounds]
        self._number = -1
        self._left = 0
        self._start: dict[str, float] = {}

    def step(self, *, target_tokens: float, **sums: float) -> None:
        """To be called where each step of training begins, at the same place of the loop. target_tokens, sums: of this
        process since its start; a round's row has their growth. Processes of one run are added up."""
        if self._left == 0:
            if self._number >= 0:
                self._report(target_tokens=target_tokens, **sums)
            self._number += 1
            if self._number == len(self.rounds):
                os._exit(0)  # a training loop that is left by an exception would save, or wait for its peers
            self._wait()
            self._left = self.rounds[self._number].steps
            torch.set_num_threads(self.rounds[self._number].threads)
            self._start = {"target_tokens": target_tokens, **sums, **_clocks()}
        self._left -= 1

    def _wait(self) -> None:
        (self.directory / f"ready-{self.rank}").touch()
        go = self.directory / f"go-{self._number}"
        while not go.exists():
            time.sleep(POLL)

    def _report(self, **sums: float) -> None:
        now = _clocks()
        growth = {name: value - self._start[name] for name, value in {**sums, **now}.items()}
        row = {"round": self._number, **self.rounds[self._number]._asdict(), **self.constants, **growth}
        with (self.directory / f"rows-{self.rank}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def _clocks() -> dict[str, float]:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return {"seconds": time.perf_counter(), "cpu_seconds": time.process_time()}
