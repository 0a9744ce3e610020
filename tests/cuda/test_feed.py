"""Between two steps of the optimizer nothing makes the host wait, its batches included."""

import pytest

from tests.cuda.feeding import STEPS, steps_on_both


def test_batches_come_without_a_wait_and_are_those_of_the_cpu(on_impostor):
    on_host, on_device, waits = on_impostor(steps_on_both)
    assert not waits
    assert len(on_device) == 2 * STEPS
    assert on_device == pytest.approx(on_host, rel=1e-3)
