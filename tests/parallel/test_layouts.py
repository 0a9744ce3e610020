"""The real engine under layouts that cut heads, hidden units, experts and vocabulary over four processes."""

import pytest

from tests.parallel.conftest import run_worker


def test_every_layout_is_plain_torch_and_any_goes_on_from_any_checkpoint(tmp_path):
    """In float64: losses, gradients, clip norm and weights of every gate, both optimizers, ZeRO 1 and 2, recomputation,
    a shared vocabulary; checkpoints bit by bit."""
    assert run_worker("layouts_worker.py", tmp_path, str(tmp_path), processes=4).endswith("adamw\nadafactor\ndone\n")


@pytest.mark.long
def test_every_gate_under_every_layout(tmp_path):
    assert run_worker("layouts_worker.py", tmp_path, str(tmp_path), "every", processes=4).endswith("done\n")
