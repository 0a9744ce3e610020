"""The checkpoints of one run: restore one, save them in the background, and remove old ones."""

import logging
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any

import torch.distributed as dist
from torch import Tensor

from pipeline.engine.checkpoint.background_save import BackgroundSave
from pipeline.engine.checkpoint.logical import code_version, first_decides, load, newest
from pipeline.engine.checkpoint.weights import read_state
from pipeline.engine.deepspeed import Engine
from pipeline.train import retention
from pipeline.train.config import CheckpointConfig
from pipeline.train.records import Records

logger = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of a run. Every process has one of these and calls the same methods at the same steps.

    As a context, it lets a running save end before an error of training ends the process.

    newest: the newest intact checkpoint at the start; None for a new run.
    """

    def __init__(self, root: Path, config: CheckpointConfig) -> None:
        self.root, self.config = root, config
        self.first = dist.get_rank() == 0
        root.mkdir(parents=True, exist_ok=True)
        dist.barrier()
        self.newest = first_decides(lambda: newest(root))
        self._saving = BackgroundSave()
        self._name = ""

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, ValueError):  # such as divergence; after a lost peer the save cannot end
            failure = self._saving.collect(wait=True)
            if failure is not None:
                logger.warning("checkpoint %s was not written: %s", self._name, failure)

    def restore(self, engine: Engine, extra: dict[str, Tensor]) -> dict[str, Any] | None:
        """Fill the engine and the extra tensors from the newest checkpoint. Return its state; None for a new run."""
        if self.newest is None:
            return None
        state = read_state(self.newest)
        if state["code"] != code_version() and self.first:
            logger.warning("%s was written by other code or another torch: not bit for bit", self.newest)
        engine.resume(state["engine"])
        tensors: dict[str, Tensor] = {**extra, **engine.state()}
        load(self.newest, tensors)
        engine.load(tensors)
        if self.first:
            retention.forget_after(self.root, state["progress"]["step"])
        return state

    def due(self, step: int) -> bool:
        """Return true if this step needs a checkpoint even without a validation."""
        return any(every and step % every == 0 for every in (self.config.save_every, self.config.every_n))

    def save(
        self,
        engine: Engine,
        extra: dict[str, Tensor],
        state: dict[str, Any],
        records: Records | None,
        *,
        wait: bool,
    ) -> None:
        """Start to save, after the previous save has ended. Copies that have drifted apart are made equal before.

        extra: tensors that are not the engine's, the same on all processes.
        wait: wait for the end and raise OSError if the save fails. Otherwise `report` tells of a failure later.
        """
        step = state["progress"]["step"]
        self.report(records, step, wait=True)
        self._name = f"step-{step:08}"
        if (drift := engine.repair_copies()) is not None and records is not None:
            records.say(f"step {step}: copies of state had drifted apart and are equal again: {drift}")
            values = {"tensors": len(drift.names), "elements": drift.elements, "largest": drift.largest}
            records.write({"event": "drift", "step": step, **values})
        self._saving.start(
            self.root / self._name,
            chain(extra.items() if self.first else (), engine.tensors_to_write()),
            {**state, "code": code_version()},
            published=self.tidy,
        )
        if wait and (failure := self._saving.collect(wait=True)) is not None:
            raise failure

    def add_validation(self, step: int, loss: float, score: float | None) -> None:
        """Add the result of a validation to the checkpoint of a step, which was saved without one."""
        if self.first:
            retention.add_validation(self.root, step, loss, score)
            self.tidy()

    def tidy(self) -> None:
        """Remove the checkpoints that need not stay. Only the first process does so, and no save may be running."""
        retention.apply(self.root, self.config)

    def report(self, records: Records | None, step: int, *, wait: bool = False) -> None:
        """Report a save that has failed since the last call. Training continues, and earlier checkpoints stay."""
        failure = self._saving.collect(wait=wait)
        if failure is not None and records is not None:
            earlier = [checkpoint for checkpoint in retention.saved(self.root) if checkpoint.name != self._name]
            consequence = "the one before it is kept" if earlier else "and there is none before it"
            records.warn(f"checkpoint {self._name} was not written, {consequence}: {failure}")
            event = {"event": "checkpoint_failed", "step": step, "checkpoint": self._name, "error": str(failure)}
            records.write(event)
