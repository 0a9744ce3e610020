"""The real engine with heads, hidden units, experts and vocabulary cut over four processes."""

import pytest

from tests.parallel.conftest import run_worker
from tests.parallel.layout_runs import TABLES


def test_every_layout_is_plain_torch_and_any_goes_on_from_any_checkpoint(tmp_path):
    """Losses, gradients, clip norm and weights agree in float64, and checkpoints bit by bit.

    The cases have several gates, both optimizers, ZeRO 1 and 2, recomputation and a shared vocabulary.
    """
    assert run_worker("layouts_worker.py", tmp_path, str(tmp_path), processes=4).endswith("adamw\nadafactor\ndone\n")


@pytest.mark.parametrize("cases", [*TABLES, "chains"])
def test_every_gate_under_every_layout(tmp_path, cases):
    """Every layout runs on every mesh. `chains` tests bf16, and checkpoints that pass through all layouts."""
    output = run_worker("layouts_worker.py", tmp_path, str(tmp_path), cases, processes=4)
    assert output.endswith("done\n")
    assert output.count("Case(") == (3 if cases == "chains" else 39)
