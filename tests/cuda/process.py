"""A process of its own that has the impostor, so that no other test meets a changed torch."""

import os
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

from tests.cuda.guard import build_guard, load_guard

Run = Callable[..., Any]


@contextmanager
def impostor_process() -> Iterator[Run]:
    """Yield a function that runs another one, which modules here define, in the process, and returns its result."""
    build_guard()  # here, where its error reaches the caller
    with _process(begin) as run:
        yield run


@contextmanager
def cpu_process() -> Iterator[Run]:
    """Yield the same for a process without the impostor. DeepSpeed keeps its device for the life of a process."""
    with _process(begin_on_cpu) as run:
        yield run


@contextmanager
def gpu_process() -> Iterator[Run]:
    """Yield the same for a process with the GPU of this machine."""
    with _process(begin_on_gpu) as run:
        yield run


@contextmanager
def _process(initializer: Callable[[], None]) -> Iterator[Run]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=initializer) as pool:
        yield lambda function, *args, **kwargs: pool.submit(told, function, *args, **kwargs).result()


def told(function: Run, *args: Any, **kwargs: Any) -> Any:
    """Call the function, and turn its error into text, because an error with tensors could not leave the process."""
    try:
        return function(*args, **kwargs)
    except Exception:  # noqa: BLE001 - raised again as text
        error = traceback.format_exc()
    raise RuntimeError(error)


def begin_on_cpu() -> None:
    os.environ["DS_ACCELERATOR"] = "cpu"
    import torch

    torch.set_num_threads(1)


def begin_on_gpu() -> None:
    os.environ["DS_ACCELERATOR"] = "cuda"


def begin() -> None:
    """Give this process the impostor, before it imports torch."""
    load_guard()
    os.environ["DS_ACCELERATOR"] = "cuda"
    import torch

    from tests.cuda.impostor import install
    from tests.cuda.streams import install_streams

    torch.set_num_threads(1)
    install()
    install_streams()
