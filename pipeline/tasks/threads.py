"""Independent stages in threads, side by side."""

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

from pipeline.stopping import Stopped, stopping

Result = TypeVar("Result")


def side_by_side(
    actions: Sequence[Callable[[], Result]], *, at_once: int, stop: Callable[[], None] = stopping.set
) -> list[Result]:
    """Run the actions in their order, `at_once` at a time, and return their results.

    The first error, or the exception of a signal in the main thread, is raised once the running actions have ended.
    stop: asks the running actions to end.
    """
    if at_once == 1:
        return [action() for action in actions]
    was_stopping = stopping.is_set()
    try:
        return _in_threads(actions, at_once, stop)
    except Exception as error:
        if stop == stopping.set and not was_stopping and not isinstance(error, Stopped):
            stopping.clear()  # it was set for these actions alone, which have ended
        raise


def _in_threads(actions: Sequence[Callable[[], Result]], at_once: int, stop: Callable[[], None]) -> list[Result]:
    with ThreadPoolExecutor(at_once, thread_name_prefix="stage") as pool:
        try:
            futures = [pool.submit(action) for action in actions]
            wait(futures, return_when=FIRST_EXCEPTION)
            errors = [error for future in futures if future.done() and (error := future.exception()) is not None]
            if errors:  # Stopped only follows another error
                raise next((error for error in errors if not isinstance(error, Stopped)), errors[0])
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            stop()
            raise
