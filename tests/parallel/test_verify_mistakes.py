"""`make verify` names what a wrong partition breaks."""

from pathlib import Path

import pytest

from pipeline.verify import command
from pipeline.verify.command import verify
from pipeline.verify.config import VerifyConfig


@pytest.fixture(scope="module")
def mistakes():
    """Return the failures of topologies that have a mistake each, made by wrong_verify_worker.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "WORKER", "tests.parallel.wrong_verify_worker")
        patch.chdir(Path(__file__).resolve().parents[2])
        config = VerifyConfig(worlds=[2], groups=[2], precisions=["float64"], gates=["top2"], steps=3)
        with pytest.raises(ValueError, match="not the same on every topology") as raised:
            verify(config)
    return str(raised.value).splitlines()[1:]


def lines_about(mistakes, title):
    return [line.strip().removeprefix(title) for line in mistakes if line.strip().startswith(title)]


def test_a_factor_on_experts_is_named(mistakes):
    lines = lines_about(mistakes, "world=2 mesh=1x2x1 layout=gshard ZeRO=1 accumulation=1 float64 top2: ")
    assert lines[0].startswith("gradient of ")
    assert ".feed_forward.experts.w" in lines[0]
    assert lines[0].endswith("differs by 1.0e+00 (bound 1e-12)")
    assert any(line.startswith("clip norm of step 1") for line in lines)


def test_a_missing_sum_in_backward_is_named(mistakes):
    lines = lines_about(mistakes, "world=2 mesh=1x1x2 layout=model ZeRO=1 accumulation=2 float64 top2: ")
    assert lines[0].startswith("gradient of ")
    assert not any(line.startswith("loss of step 1 ") for line in lines)  # forward is right


def test_a_norm_that_counts_copies_twice_is_named(mistakes):
    lines = lines_about(mistakes, "world=2 mesh=1x1x2 layout=model ZeRO=2 accumulation=2 float64 top2: ")
    assert lines[0].startswith("clip norm of step 1 ")
    assert not any("gradient" in line for line in lines)


def test_another_process_than_the_first_is_looked_at(mistakes):
    lines = lines_about(mistakes, "world=2 mesh=1x1x2 layout=summed ZeRO=1 accumulation=2 float64 top2: ")
    assert lines[0] == "gradient of encoder.norm.weight differs by 5.0e-01 (bound 1e-12)"


RESUMED = "world=2 mesh={} layout=gshard ZeRO={} accumulation=1{}"


def test_moments_that_stay_behind_are_named(mistakes):
    source = RESUMED.format("1x2x1", 2, ": ")
    lines = lines_about(mistakes, RESUMED.format("2x1x1", 1, " float64 top2 from a checkpoint of ") + source)
    assert [line.split()[0] for line in lines] == ["loss", "clip", "weight"]
    assert not any(" of step 2 " in line for line in lines)  # the loss of the first step does not depend on moments


def test_what_is_right_is_not_named(mistakes):
    for mesh, zero in (("2x1x1", 1), ("2x1x1", 2), ("1x2x1", 2)):
        assert not lines_about(mistakes, RESUMED.format(mesh, zero, " float64 top2: "))
    source = RESUMED.format("2x1x1", 1, ": ")
    assert not lines_about(mistakes, RESUMED.format("1x2x1", 2, " float64 top2 from a checkpoint of ") + source)
