"""Processor time, which hardly depends on other programs of the machine."""

import resource


def childrens_seconds() -> float:
    """Return the processor time of all finished child processes and their children."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
