"""Save checkpoints in the background: training continues while a thread writes and publishes a copy of the tensors."""

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

from pipeline.engine.checkpoint.logical import save

PATIENCE = timedelta(hours=1)  # for the slowest disk; a process that dies is noticed by its connections
NICE = 10  # priority of the thread that saves


class BackgroundSave:
    """Runs at most one save at a time. Every process has one of these and starts the same saves in the same order.

    The thread has its own process group, so that its collectives never mix with those of training.
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
        """Start a save. The previous one must have been collected.

        tensors: moved to the host one by one. No other code may write to them.
        """
        assert self._running is None, "a save is in flight"
        copies = {name: tensor.cpu() for name, tensor in tensors}
        self._running = self._pool.submit(save, directory, copies, state, group=self._group, published=published)

    def collect(self, *, wait: bool) -> OSError | None:
        """Return the OSError of the running save if it has ended and failed. Raises any other error.

        wait: wait for the end of the save.
        """
        if self._running is None or not (wait or self._running.done()):
            return None
        running, self._running = self._running, None
        try:
            running.result()
        except OSError as error:
            return error
        return None


def _give_way() -> None:
    """Lower the priority of this thread below that of training. Only Linux has priorities of threads."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
