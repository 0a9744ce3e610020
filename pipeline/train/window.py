"""Sums from one record of training to the next, and from one validation to the next.

L MoE layers, P language pairs, E experts.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pipeline.train.measure import MEMORY_SOURCES, largest, peak_memory
from pipeline.train.routing import RoutingSums, write_usage
from pipeline.train.totals import StepSums, Stopwatch


class Window:
    """The sums of every process. Checkpoints have them, so that a resumed run records the same values.

    data_wait: runs while this process waits for its batches.
    """

    def __init__(self, routing: RoutingSums, pairs: Sequence[str], device: torch.device) -> None:
        self.routing, self.pairs, self.device = routing, pairs, device
        self.data_wait = Stopwatch()
        self._seconds = 0.0
        self._pairs_P2 = torch.zeros(len(pairs), 2, dtype=torch.float64, device=device)  # since the last record
        self._usage_LPE = torch.zeros_like(routing.usage_LPE)  # since the last validation, up to the last record

    def add(self, sums: StepSums, seconds: float) -> None:
        """Add one step's sums over all processes and its time."""
        self._pairs_P2 += sums.pairs_P2
        self._seconds += seconds

    def record(self, nonempty_groups: int) -> dict[str, Any]:
        """Return values for a record and start new sums. A collective.

        memory: the most bytes that a process has held.
        memory_source: who counted them (`MEMORY_SOURCES`), the least exact one of all processes.
        data_wait: the largest share of the time that a process waited for batches.
        pairs: cross-entropy by pair, for the pairs that had tokens.

        The values of `RoutingSums.record` follow.
        """
        peak = peak_memory(self.device)
        source = float(MEMORY_SOURCES.index(peak.source))
        memory, source, waited = largest([peak.size, source, self.data_wait.seconds], self.device)
        usage_LPE = self.routing.take_usage()
        self._usage_LPE += usage_LPE
        pairs = zip(self.pairs, self._pairs_P2.tolist(), strict=True)
        values = {
            "memory": int(memory),
            "memory_source": MEMORY_SOURCES[int(source)],
            "data_wait": waited / self._seconds,
            "pairs": {pair: nll / tokens for pair, (nll, tokens) in pairs if tokens},
            **self.routing.record(nonempty_groups, usage_LPE),
        }
        self._pairs_P2.zero_()
        self.data_wait.seconds = self._seconds = 0.0
        return values

    def take_usage(self) -> Tensor:
        """Return the expert choices of all processes since the last call, [L, P, E]. A collective."""
        usage_LPE = self._usage_LPE + self.routing.take_usage()
        self._usage_LPE.zero_()
        return usage_LPE

    def return_usage(self, usage_LPE: Tensor) -> None:
        """Add what `take_usage` has returned to the choices since the last validation, because it got no record."""
        self._usage_LPE += usage_LPE

    def write_usage(self, path: Path, train_LPE: Tensor, dev_LPE: Tensor) -> None:
        """Write the usage of a model with experts; see `pipeline.train.routing`."""
        if self.routing.names:
            write_usage(path, names=self.routing.names, pairs=self.pairs, train_LPE=train_LPE, dev_LPE=dev_LPE)

    def tensors(self) -> dict[str, Tensor]:
        """Return the sums for a checkpoint, the same on all processes. A collective."""
        tensors = {"window.pairs": self._pairs_P2.clone()}
        if self.routing.names:
            tensors["window.usage"] = self._usage_LPE.clone()
            tensors["window.usage_unrecorded"] = self.routing.share_usage()
        return tensors

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Continue from what `tensors` has returned, on any number of processes."""
        self._pairs_P2 = tensors["window.pairs"]
        if self.routing.names:
            self._usage_LPE = tensors["window.usage"]
            self.routing.set_usage(tensors["window.usage_unrecorded"])
