"""Durations as people read them, and how long jobs take that run side by side."""

import pytest

from pipeline.clock import clock, makespan


@pytest.mark.parametrize(("seconds", "text"), [(5, "0:05"), (125, "2:05"), (3723, "1:02:03"), (float("nan"), "-:--")])
def test_clock(seconds, text):
    assert clock(seconds) == text


def test_jobs_that_wait_begin_when_a_place_is_free():
    assert makespan([], [], 1) == 0
    assert makespan([10], [100, 100], 1) == 210
    assert makespan([10, 50], [100, 100], 2) == 150  # at 10 and at 50
    assert makespan([], [100, 30, 30], 2) == 100
