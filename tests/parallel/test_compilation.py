"""Compiled training by real processes."""

import shutil

import pytest

from tests.parallel.conftest import MODEL


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.parametrize(("recompute", "mp"), [("none", 1), ("all", 1), ("none", 2)])
def test_a_compiled_job_trains_as_an_eager_one(run_job, recompute, mp):
    """Fused operations round differently in float32. The difference grows a little with each step."""
    eager, compiled = (
        run_job(
            processes=2,
            ep=2 // mp,
            max_steps=3,
            runtime={"compile": compile, "recompute": recompute, "mp": mp},
            layout=MODEL,
        )
        for compile in (False, True)  # noqa: A001 - the setting's name
    )
    for actual, expected in zip(compiled.records("train"), eager.records("train"), strict=True):
        tolerance = 2e-6 if actual["step"] == 1 else 1e-4
        for quantity in ("cross_entropy", "aux_loss", "gradient_norm"):
            assert actual[quantity] == pytest.approx(expected[quantity], rel=tolerance), (quantity, actual["step"])
    loss = [outcome.records("validation")[-1]["cross_entropy"] for outcome in (compiled, eager)]
    assert loss[0] == pytest.approx(loss[1], rel=1e-4)
