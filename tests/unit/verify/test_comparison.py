"""Deviations, bounds and what a failure says."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from pipeline.verify.command import parse, plan
from pipeline.verify.comparison import compare_case
from pipeline.verify.config import GATES, NUM_EXPERTS, Case, VerifyConfig
from pipeline.verify.table import heading, line

CASE = Case(world=2, ep=2, zero_stage=1, groups=4, precision="float64", gate="top2")


def outcome(**changes):
    served = np.zeros((2, 4, 3 * NUM_EXPERTS), dtype=np.uint8)
    served[:, :, ::NUM_EXPERTS] = 1
    return {
        "loss": np.array([4.0, 3.0]),
        "norm": np.array([2.0, 1.5]),
        "served": served,
        "gradient of a": np.array([1.0, -10.0]),
        "gradient of b": np.array([0.0, 0.0]),
        "weight a": np.array([1.0, 2.0]),
        **changes,
    }


def row(tmp_path, case=CASE, **changes):
    save_file(outcome(), tmp_path / f"{case.reference}.safetensors")
    save_file(outcome(**changes), tmp_path / f"{case.name}.safetensors")
    return compare_case(case, tmp_path)


def test_the_same_is_ok(tmp_path):
    same = row(tmp_path)
    assert not same.failed
    assert line(same).endswith("ok")
    assert len(line(same).split()) == len(heading(2).splitlines()[1].split()) + 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gradient of a": np.array([1.0, -9.9])}, r"gradient of a differs by 1\.0e-02 \(bound 1e-12\)"),
        ({"gradient of b": np.array([0.0, 1e-30])}, "gradient of b differs by inf"),
        ({"gradient of c": np.array([1.0])}, "gradient of c differs by inf"),
        ({"weight a": np.array([np.nan, 2.0])}, "weight a differs by inf"),
        ({"loss": np.array([4.0, 3.1])}, "loss of step 2 differs by 3.3e-02"),
        ({"norm": np.array([2.1, 1.5])}, "clip norm of step 1 differs by 5.0e-02"),
    ],
)
def test_a_deviation_is_named(tmp_path, changes, message):
    wrong = row(tmp_path, **changes)
    assert line(wrong).endswith("FAIL")
    with pytest.raises(AssertionError, match="world=2 ep=2 ZeRO=1 accumulation=2 float64 top2: " + message):
        raise AssertionError("\n".join(wrong.failures()))


def test_moved_tokens_are_counted_and_judged_where_routing_was_replayed(tmp_path):
    served = outcome()["served"]
    served[0, 0, :2] = 0, 1
    moved = row(tmp_path, served=served)
    assert (moved.moved, moved.tokens, moved.failed) == (1, 24, False)
    replayed = Case(world=2, ep=2, zero_stage=1, groups=4, precision="fp32", gate="top2", replayed=True)
    assert "for 1 of 24 tokens" in "".join(row(tmp_path, replayed, served=served).failures())


def test_the_whole_plan():
    """The issue's: six topologies, ZeRO 1 and 2, accumulation 1 and 4 for top2; every other gate at two topologies."""
    by_world = plan(VerifyConfig())
    assert list(by_world) == [1, 2, 4]
    cases = [case for found in by_world.values() for case in found if case.ep]
    proofs = [case for case in cases if case.precision == "float64"]
    main = {(c.world, c.ep, c.zero_stage, c.accumulation) for c in proofs if c.gate == "top2"}
    topologies = [(1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (4, 4)]
    assert main == {(w, ep, zero, n // w) for w, ep in topologies for zero in (1, 2) for n in (4, 16)}
    for gate in GATES:
        if gate != "top2":
            assert len({(c.world, c.ep) for c in proofs if c.gate == gate}) == 2
    assert len(cases) == len({case.name for case in cases})
    references = [case.reference for case in by_world[1] if not case.ep]
    assert len(references) == len(set(references))
    assert {case.reference for case in cases} == set(references)


def test_options():
    config = parse(["worlds=[1,2]", "gates=[top2]", "precisions=[float64]", "steps=3"])
    assert config == VerifyConfig(worlds=[1, 2], gates=["top2"], precisions=["float64"], steps=3)
    for argument, message in {
        "steps": "'steps' is not key=value",
        "step=3": "did you mean steps",
        "gates=[top3]": "top3 does not exist",
        "worlds=[3]": "3 processes divide none of groups",
        "precisions=[]": "precisions is empty",
        "precisions=[fp16]": "'fp16' is not one of",
    }.items():
        with pytest.raises(ValueError, match=message):
            parse([argument])
