"""The engine, DeepSpeed's, on cuda:0 trains as on a CPU, and continues bit for bit from a checkpoint."""

import numpy as np
import pytest

from tests.cuda.engine import train

# Relative distances of losses and norms. Those of bf16 and fp16 have the reasons of test_training.py, after 3 steps.
BOUNDS = {"fp32": 1e-6, "bf16": 2e-2, "fp16": 2e-3}
STATE = 1e-5  # of weights, moments and averages in fp32, after two steps
STEP = {  # the host needs the gradient norm before it may update
    ("engine/deepspeed.py:norm_of_step", "_local_scalar_dense"),
    ("engine/deepspeed.py:step", "_local_scalar_dense"),
    ("engine/deepspeed.py:step", "synchronize"),
}


@pytest.mark.parametrize(
    ("optimizer", "precision", "zero_stage"),
    [
        ("adamw", "fp32", 1),
        ("adafactor", "fp32", 2),
        ("adamw", "bf16", 2),
        ("adamw", "fp16", 1),
        ("adafactor", "bf16", 1),
    ],
)
def test_steps_and_a_checkpoint(on_impostor, on_cpu, tmp_path, optimizer, precision, zero_stage):
    settings = {"optimizer": optimizer, "precision": precision, "zero_stage": zero_stage}
    cpu_trained, cuda_trained = (
        run(train, device, tmp_path, **settings) for run, device in ((on_cpu, "cpu"), (on_impostor, "cuda"))
    )
    losses = [[*trained.losses, *trained.norms, trained.third[0]] for trained in (cpu_trained, cuda_trained)]
    assert losses[1] == pytest.approx(losses[0], rel=BOUNDS[precision])
    assert cpu_trained.state.keys() == cuda_trained.state.keys()
    if precision == "fp32":
        for name, value in cpu_trained.state.items():
            assert np.linalg.norm(value - cuda_trained.state[name]) <= STATE * np.linalg.norm(value), name
    loss, state = cuda_trained.third
    resumed_loss, resumed_state = cuda_trained.third_resumed
    assert loss == resumed_loss
    for name, value in state.items():
        np.testing.assert_array_equal(resumed_state[name], value, err_msg=name)
    for name, value in cuda_trained.decoding.items():
        np.testing.assert_array_equal(value, cuda_trained.state[f"ema.{name}"], err_msg=name)
    micro_batch, update = cuda_trained.waits
    assert not micro_batch
    assert not cuda_trained.refused  # so that runtime.deterministic trains
    assert update <= STEP
