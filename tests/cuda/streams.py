"""The rest of torch.cuda that DeepSpeed calls: streams and events that are always done, memory, marks."""

from types import SimpleNamespace
from typing import Any

import torch


class Done:
    """A stream or an event. All that was put on it has run."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> "Done":
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def wait_stream(self, stream: Any) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        pass

    def record_event(self, event: Any = None) -> "Done":
        return event or Done()

    def record(self, stream: Any = None) -> None:
        pass

    def query(self) -> bool:
        return True


def install_streams() -> None:
    """Replace these parts of torch.cuda in this process."""
    cuda: Any = torch.cuda
    only = Done()
    cuda.Stream = cuda.Event = Done
    cuda.current_stream = cuda.default_stream = lambda device=None: only
    cuda.stream = lambda stream: stream
    cuda.empty_cache = lambda: None
    cuda.reset_peak_memory_stats = lambda device=None: None
    cuda.memory_stats = lambda device=None: {}
    cuda.memory_allocated = cuda.max_memory_allocated = lambda device=None: 0
    cuda.memory_reserved = cuda.max_memory_reserved = lambda device=None: 0
    cuda.get_device_properties = lambda device=None: SimpleNamespace(total_memory=1 << 36, major=9, minor=0)
    cuda.nvtx.range_push = lambda message: 0
    cuda.nvtx.range_pop = lambda: 0
