"""Processor time, which other work on the machine hardly changes."""

import resource


def childrens_seconds() -> float:
    """That of all processes which this one has started and waited for, and those that they waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
