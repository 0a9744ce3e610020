"""The CUDA device of each of several jobs of one process that run side by side on this machine."""

import os
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from pipeline.jobs.runtime import RuntimeConfig

VISIBLE = "CUDA_VISIBLE_DEVICES"
DRIVER = Path("/proc/driver/nvidia/version")  # it exists where NVIDIA's driver is loaded


def own_device(runtime: RuntimeConfig, slot: int) -> dict[str, str]:
    """Return the environment variable by which a job of one process sees one device alone.

    The job of slot i gets the i-th device that this process sees. If there are fewer devices than slots, jobs share
    them in turn. The result is empty on a CPU, for a job of several processes, and where jobs do not run side by side.

    slot: number of the job among those that run at the same time, from 0.
    """
    if runtime.device == "cpu" or runtime.processes > 1 or runtime.parallel_baselines == 1:
        return {}
    names = _visible(runtime.device)
    return {VISIBLE: names[slot % len(names)]} if names else {}


def _visible(device: str) -> Sequence[str]:
    """Return the names of the devices that this process sees, as CUDA_VISIBLE_DEVICES has them: numbers or UUIDs.

    device: cuda or auto. For auto, torch is loaded only where there is a driver, because it is slow to load.
    """
    if VISIBLE in os.environ:
        names = (name.strip() for name in os.environ[VISIBLE].split(","))
        return list(takewhile(lambda name: name and not name.startswith("-"), names))  # CUDA too stops at -1
    if device == "auto" and not DRIVER.exists():
        return []
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]
