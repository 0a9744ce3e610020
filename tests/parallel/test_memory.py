"""The planner predicts the peak of memory in a step of the real engine."""

import re

from tests.parallel.conftest import run_worker


def test_the_peak_is_what_lives_at_once(tmp_path):
    """Predicted over counted bytes are near 1, with ZeRO-1 and 2, accumulation, Adafactor, bf16 and recomputation.

    One model has biases. The formula leaves out small vectors, such as those of routing.
    """
    ratios = re.findall(r"^d=.*: (\d.\d{3})$", run_worker("memory_worker.py", tmp_path, processes=1), re.MULTILINE)
    assert len(ratios) == 6
    assert all(0.95 < float(ratio) < 1.05 for ratio in ratios), ratios
