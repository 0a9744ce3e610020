"""Stages that do not need each other, side by side."""

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

from pipeline.stage import Stopped, stopping

Result = TypeVar("Result")


def side_by_side(
    actions: Sequence[Callable[[], Result]], *, at_once: int, stop: Callable[[], None] = stopping.set
) -> list[Result]:
    """The actions' results, in their order; `at_once` of them run at the same time, begun in that order.

    The first error, or what a signal raises in the main thread, is raised here after `stop` has asked what is under way
    to end, and it has. One at once is the plain loop.
    """
    if at_once == 1:
        return [action() for action in actions]
    asked = stopping.is_set()
    try:
        return _in_threads(actions, at_once, stop)
    except Exception as error:
        if stop == stopping.set and not asked and not isinstance(error, Stopped):
            stopping.clear()  # it was for these actions alone, which have ended
        raise


def _in_threads(actions: Sequence[Callable[[], Result]], at_once: int, stop: Callable[[], None]) -> list[Result]:
    with ThreadPoolExecutor(at_once, thread_name_prefix="stage") as pool:
        try:
            futures = [pool.submit(action) for action in actions]
            wait(futures, return_when=FIRST_EXCEPTION)
            errors = [error for future in futures if future.done() and (error := future.exception()) is not None]
            if errors:  # one that was asked to stop only follows another
                raise next((error for error in errors if not isinstance(error, Stopped)), errors[0])
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            stop()
            raise
