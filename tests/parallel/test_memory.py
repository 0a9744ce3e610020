"""What lives at once in a step of the real engine, and what the planner says of it."""

import re

from tests.parallel.conftest import run_worker


def test_the_peak_is_what_lives_at_once(tmp_path):
    """ZeRO-1 and 2, with and without accumulation, Adafactor, bf16, computing again: predicted over counted. Small
    vectors, such as routing's, are not in the formula."""
    ratios = re.findall(r"^d=.*: (\d.\d{3})$", run_worker("memory_worker.py", tmp_path, processes=1), re.MULTILINE)
    assert len(ratios) == 5
    assert all(0.95 < float(ratio) < 1.05 for ratio in ratios), ratios
