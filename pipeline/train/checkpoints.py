"""The checkpoints of one run: restored, saved beside training, kept by rule."""

import logging
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any

import torch.distributed as dist
from torch import Tensor

from pipeline.parallel.background_save import BackgroundSave
from pipeline.parallel.checkpoint import code_version, first_decides, load, newest
from pipeline.parallel.deepspeed import Engine
from pipeline.parallel.weights import read_state
from pipeline.train import retention
from pipeline.train.config import CheckpointConfig
from pipeline.train.records import Records

logger = logging.getLogger(__name__)


class Checkpoints:
    """Every process holds one and calls the same methods at the same steps.

    found: the newest intact checkpoint there was, None for a run that starts anew. As a context it lets a save that is
    in flight end before an error of training ends the process.
    """

    def __init__(self, root: Path, config: CheckpointConfig) -> None:
        self.root, self.config = root, config
        self.first = dist.get_rank() == 0
        root.mkdir(parents=True, exist_ok=True)
        dist.barrier()
        self.found = first_decides(lambda: newest(root))
        self._saving = BackgroundSave()
        self._name = ""

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, ValueError):  # divergence, say; a lost peer is no reason to wait
            failure = self._saving.collect(wait=True)
            if failure is not None:
                logger.warning("checkpoint %s was not written: %s", self._name, failure)

    def restore(self, engine: Engine, others: dict[str, Tensor]) -> dict[str, Any] | None:
        """Fill the engine and `others` with `found`, and give what it holds beside tensors."""
        if self.found is None:
            return None
        state = read_state(self.found)
        if state["code"] != code_version() and self.first:
            logger.warning("%s was written by other code or another torch: not bit for bit", self.found)
        engine.resume(state["engine"])
        tensors: dict[str, Tensor] = {**others, **engine.state()}
        load(self.found, tensors)
        engine.load(tensors)
        if self.first:
            retention.forget_after(self.root, state["progress"]["step"])
        return state

    def due(self, step: int) -> bool:
        """Whether a checkpoint is wanted at this step, validation or not."""
        return any(every and step % every == 0 for every in (self.config.save_every, self.config.every_n))

    def save(
        self,
        engine: Engine,
        others: dict[str, Tensor],
        state: dict[str, Any],
        records: Records | None,
        *,
        wait: bool,
    ) -> None:
        """Begin to save, once the save before has ended. others: tensors beside the engine's, the same on all
        processes. wait: to its end, and raise OSError if it fails; otherwise `report` tells of a failure, later."""
        self.report(records, state["progress"]["step"], wait=True)
        self._name = f"step-{state['progress']['step']:08}"
        self._saving.start(
            self.root / self._name,
            chain(others.items(), engine.tensors()),
            {**state, "code": code_version()},
            published=self.tidy,
        )
        if wait and (failure := self._saving.collect(wait=True)) is not None:
            raise failure

    def tidy(self) -> None:
        """Apply the rule to what is there; no save may be in flight. On the first process."""
        retention.apply(self.root, self.config)

    def report(self, records: Records | None, step: int, *, wait: bool = False) -> None:
        """Tell of a save that failed since the last call; training goes on, a checkpoint before it stays."""
        failure = self._saving.collect(wait=wait)
        if failure is not None and records is not None:
            others = [each for each in retention.saved(self.root) if each.name != self._name]
            kept = "the one before it is kept" if others else "and there is none before it"
            records.say(f"warning: checkpoint {self._name} was not written, {kept}: {failure}")
            event = {"event": "checkpoint_failed", "step": step, "checkpoint": self._name, "error": str(failure)}
            records.write(event)
