"""The real engine under layouts that cut heads, hidden units, experts and vocabulary over four processes."""

import pytest

from tests.parallel.conftest import run_worker
from tests.parallel.layout_runs import TABLES


def test_every_layout_is_plain_torch_and_any_goes_on_from_any_checkpoint(tmp_path):
    """In float64: losses, gradients, clip norm and weights of every gate, both optimizers, ZeRO 1 and 2, recomputation,
    a shared vocabulary; checkpoints bit by bit."""
    assert run_worker("layouts_worker.py", tmp_path, str(tmp_path), processes=4).endswith("adamw\nadafactor\ndone\n")


@pytest.mark.long
@pytest.mark.parametrize("cases", [*TABLES, "chains"])
def test_every_gate_under_every_layout(tmp_path, cases):
    """On every mesh, layout by layout; then bf16, and checkpoints that every layout writes and the next one reads."""
    said = run_worker("layouts_worker.py", tmp_path, str(tmp_path), cases, processes=4)
    assert said.endswith("done\n")
    assert said.count("Case(") == (3 if cases == "chains" else 27)
