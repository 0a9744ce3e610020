"""Notes of this process on being asked to stop: whatever runs long looks here, and `pipeline.ending` judges by them."""

import threading

stopping = threading.Event()  # set once this process has been asked to stop; every wait ends then
signals: list[int] = []  # the signal that asked, empty before
unsaved: list[str] = []  # jobs that failed to save their work when they were asked to stop, with the reason


class Stopped(Exception):  # noqa: N818 - an orderly end, not an error
    """Work was asked to stop, saved its state, and can be resumed."""


def stop_if_asked(title: str) -> None:
    """Raise Stopped if this process has been asked to stop. For long loops in threads, which no signal ends."""
    if stopping.is_set():
        raise Stopped(title)
