"""The type of device on which this machine computes, and the device of each of several jobs that run side by side."""

import os
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from pipeline.jobs.runtime import RuntimeConfig

VISIBLE = "CUDA_VISIBLE_DEVICES"
# One of them exists where NVIDIA's driver is loaded: on Linux, in a container, on Linux under Windows.
DRIVERS = (Path("/proc/driver/nvidia/version"), Path("/dev/nvidiactl"), Path("/dev/dxg"))


def device_type(setting: str) -> str:
    """Return the type of device on which the processes of this machine run: cpu or cuda.

    Random draws depend on it, and so does the default precision.

    setting: runtime.device. auto is cuda if torch finds a device. Torch is loaded only where there is a driver, because
        it is slow to load.
    """
    if setting != "auto":
        return setting
    return "cuda" if num_devices(setting) else "cpu"


def check_devices(setting: str, processes: int) -> None:
    """Raise ValueError if this machine has fewer CUDA devices than processes that need one.

    setting: runtime.device. auto needs none on a machine without devices.
    """
    devices = num_devices(setting)
    if setting == "cpu" or processes <= devices or (setting == "auto" and not devices):
        return
    raise ValueError(
        f"runtime.device={setting} with {processes} process{'es' if processes > 1 else ''} on this machine, where "
        f"torch finds {devices} CUDA device{'s' if devices != 1 else ''}; set runtime.processes and runtime.ep to fit "
        "(RUNTIME=gpu has one process), or runtime.device=cpu"
    )


def num_devices(setting: str) -> int:
    """Return the number of devices that torch finds on this machine; 0 if `runtime.device` excludes them."""
    if setting == "cpu" or (setting == "auto" and not _has_driver()):
        return 0
    import torch

    return torch.cuda.device_count()


def _has_driver() -> bool:
    return any(driver.exists() for driver in DRIVERS)


def has_unused_driver() -> bool:
    """Return true if this machine has a driver but torch finds no device, although the user hides none."""
    return _has_driver() and VISIBLE not in os.environ and not num_devices("cuda")


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

    device: cuda or auto.
    """
    if VISIBLE in os.environ:
        names = (name.strip() for name in os.environ[VISIBLE].split(","))
        return list(takewhile(lambda name: name and not name.startswith("-"), names))  # CUDA too stops at -1
    return [str(number) for number in range(num_devices(device))]
