"""Saving beside training: the step hands over a copy of the tensors and goes on; a thread writes and publishes it."""

import os
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor

from pipeline.parallel.checkpoint import save

PATIENCE = timedelta(hours=1)  # with the slowest disk of all processes; one that dies is noticed by its connections
NICE = 10  # of the thread that saves


class BackgroundSave:
    """At most one save at a time. Every process holds one and starts the same saves in the same order.

    The thread has a process group of its own, so that its collectives never meet those of training.
    """

    def __init__(self) -> None:
        self._group = dist.new_group(backend="gloo", timeout=PATIENCE)
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint", initializer=_give_way)
        self._running: Future[None] | None = None

    def start(
        self,
        directory: Path,
        tensors: Iterable[tuple[str, Tensor]],
        state: dict[str, Any],
        published: Callable[[], None],
    ) -> None:
        """tensors: made for this save, as nothing else may write to them; moved to the host one by one. The save
        before must have been collected."""
        assert self._running is None, "a save is in flight"
        copies = {name: tensor.cpu() for name, tensor in tensors}
        self._running = self._pool.submit(save, directory, copies, state, group=self._group, published=published)

    def collect(self, *, wait: bool) -> OSError | None:
        """What stopped the save in flight, if it has ended and failed. Raises anything that is not the disk's fault."""
        if self._running is None or not (wait or self._running.done()):
            return None
        running, self._running = self._running, None
        try:
            running.result()
        except OSError as error:
            return error
        return None


def _give_way() -> None:
    """Let training have the processor first where there is none to spare. On Linux a thread has a priority of its
    own."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
