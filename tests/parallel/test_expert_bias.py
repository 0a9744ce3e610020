"""Biases that balance experts: moved once a step by the choices of all processes, saved, resumed and averaged.

tests/parallel/test_layouts.py compares them with plain torch under layouts, and passes them from layout to layout.
"""

from dataclasses import replace

import numpy as np
import torch

from pipeline.train.config import CheckpointConfig
from tests.gates import moe_of

RATE, DECAY = 0.01, 0.5
BIASES = [f"{side}.layers.1.feed_forward.router.bias_E" for side in ("encoder", "decoder")]


def moved(outcome):
    """Return the biases' moves [layer, expert] by hand, from the choices in training since the last validation."""
    with np.load(outcome.directory / "log" / "routing.npz") as usage:
        load_LE = torch.from_numpy(usage["train"]).sum(dim=1)
        assert usage["dev"].sum() > 0
    assert load_LE.sum() > 0
    return RATE * (load_LE.double().mean(dim=1, keepdim=True) - load_LE).sign()


def biases_of(outcome, step, kind="model"):
    tensors = outcome.tensors(f"step-{step:08}")
    return torch.stack([tensors[f"{kind}.{name}"] for name in BIASES]).double()


def test_they_move_by_the_training_of_each_step_alone_and_on_any_topology(run_job):
    """Every step is validated, and a validation's choices count nowhere. A float32 sum rounds to 2e-9.

    Among 16 experts some have nearly a fair share, so choices that are missing or count twice turn a sign. The third
    step runs on another number of processes.
    """
    moe = moe_of("sigmoid", num_experts=16, z_weight=1e-3)
    moe = replace(moe, gate=replace(moe.gate, k=4, bias_rate=RATE))
    settings = {"moe": moe, "ema": DECAY, "validate_every": 1, "checkpoints": CheckpointConfig(every_n=1)}
    outcome = run_job(processes=2, ep=2, max_steps=2, **settings)
    first, second = (biases_of(outcome, step) for step in (1, 2))
    assert {round(float(size), 4) for size in first.abs().unique()} <= {0.0, RATE}
    torch.testing.assert_close(second, first + moved(outcome), rtol=0, atol=2e-9)
    run_job(processes=1, ep=1, max_steps=3, into=outcome, **settings)
    third, average = biases_of(outcome, 3), first
    torch.testing.assert_close(third, second + moved(outcome), rtol=0, atol=4e-9)
    for step, biases in ((1, first), (2, second), (3, third)):
        average = DECAY * average + (1 - DECAY) * biases
        torch.testing.assert_close(biases_of(outcome, step, "ema"), average, rtol=0, atol=4e-9)
    state = [name for name in outcome.tensors("step-00000003") if name.endswith("bias_E")]
    assert sorted(state) == sorted(f"{kind}.{name}" for kind in ("ema", "model") for name in BIASES)
