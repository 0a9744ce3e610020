"""Durations as people read them."""

import pytest

from pipeline.clock import clock


@pytest.mark.parametrize(("seconds", "text"), [(5, "0:05"), (125, "2:05"), (3723, "1:02:03"), (float("nan"), "-:--")])
def test_clock(seconds, text):
    assert clock(seconds) == text
