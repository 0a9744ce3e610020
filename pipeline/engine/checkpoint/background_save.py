"""Save checkpoints in the background: training continues while a thread writes and publishes a copy of the tensors."""

import os
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
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

        tensors: those of which this process writes its part. No other code may write to them. They are moved to the
            host one by one. From CUDA they go into pinned memory, and only the thread waits until they have arrived.
        """
        assert self._running is None, "a save is in flight"
        copies, devices = {}, set()
        for name, tensor in tensors:
            copies[name] = tensor.to("cpu", non_blocking=True)  # torch pins the memory of such a copy
            devices.add(tensor.device)
        arrivals = {device: torch.Event(device) for device in devices if device.type != "cpu"}
        for arrival in arrivals.values():
            arrival.record()

        def write() -> None:
            for device, arrival in arrivals.items():
                torch.cuda.set_device(device)  # a new thread has the first one
                arrival.synchronize()
            save(directory, copies, state, group=self._group, published=published)

        self._running = self._pool.submit(write)

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
