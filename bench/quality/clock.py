"""The clock of a training run. It counts from the first step, without validation and saving, and saves at its marks."""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist

MARKS = "marks.jsonl"


class Clock:
    """Counts training time in every process of a run, and ends the process after the last mark.

    The first process decides when a mark has come, so that all of them save at the same step.
    """

    def __init__(
        self,
        directory: Path,
        minutes: Sequence[float],
        *,
        rank: int,
        save: Callable[[Path], None],
        tokens: Callable[[], float],
        parameters: int,
    ) -> None:
        """Prepare for marks after so many minutes.

        save: writes the weights of now to a directory. It is called in every process.
        tokens: returns the real target tokens that this process was trained on.
        """
        self.directory, self.marks, self.rank = directory, list(minutes), rank
        self.save, self.tokens, self.parameters = save, tokens, parameters
        self.steps = 0
        self._seconds = 0.0
        self._since = 0.0

    def step(self) -> None:
        """Count a step. Call this at the beginning of each training step."""
        if not self._since:
            self._since = time.perf_counter()
            return
        self.steps += 1
        seconds = self._seconds + time.perf_counter() - self._since
        if not self._decided(seconds >= 60 * self.marks[0]):
            return
        minutes = self.marks.pop(0)
        with self.paused():
            self.save(self.directory / mark_name(minutes))
            self._record(minutes, seconds)
        if not self.marks:
            os._exit(0)  # a training loop would save again, or wait for its peers

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock, for validation and saving."""
        self._seconds += time.perf_counter() - self._since
        try:
            yield
        finally:
            self._since = time.perf_counter()

    def _record(self, minutes: float, seconds: float) -> None:
        tokens = torch.tensor(float(self.tokens()), dtype=torch.float64)
        if dist.is_initialized():
            dist.all_reduce(tokens)
        if self.rank == 0:
            row = {"minutes": minutes, "seconds": seconds, "steps": self.steps, "target_tokens": int(tokens)}
            with (self.directory / MARKS).open("a", encoding="utf-8") as file:
                file.write(json.dumps({**row, "parameters": self.parameters}) + "\n")
        if dist.is_initialized():
            dist.barrier()

    def _decided(self, due: bool) -> bool:
        """Return what the first process says."""
        if not dist.is_initialized() or dist.get_world_size() == 1:
            return due
        decision = torch.tensor(int(due))
        dist.broadcast(decision, src=0)
        return bool(decision)


def mark_name(minutes: float) -> str:
    """Return the name of a mark's weights."""
    return f"mark-{minutes:g}"
