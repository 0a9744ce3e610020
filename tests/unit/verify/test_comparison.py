"""Deviations, their bounds and messages of failures."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from pipeline.parallel import layout
from pipeline.verify.command import parse, plan
from pipeline.verify.comparison import LARGEST, SMALLEST, compare_case, compare_resumption, worst
from pipeline.verify.config import GATES, LAYOUTS, NUM_EXPERTS, OF_RECIPES, Case, Target, VerifyConfig
from pipeline.verify.table import heading, line

TITLE = "world=2 mesh=1x2x1 layout=gshard ZeRO=1 accumulation=2"
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
    assert len(line(same).split()) == len(heading(2, 2).splitlines()[1].split()) + 1


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
    with pytest.raises(AssertionError, match=TITLE + " float64 top2: " + message):
        raise AssertionError("\n".join(wrong.failures()))


def test_moved_tokens_are_counted_and_judged_where_routing_was_replayed(tmp_path):
    served = outcome()["served"]
    served[0, 0, :2] = 0, 1
    moved = row(tmp_path, served=served)
    assert (moved.moved, moved.tokens, moved.failed) == (1, 24, False)
    replayed = Case(world=2, ep=2, zero_stage=1, groups=4, precision="fp32", gate="top2", replayed=True)
    assert "for 1 of 24 tokens" in "".join(row(tmp_path, replayed, served=served).failures())


def test_other_processes_than_the_first_count(tmp_path):
    """A value that is right on the first process is wrong if another process has a larger or a smaller one."""
    for ending, value in ((LARGEST, 0.5), (SMALLEST, -0.5)):
        wrong = row(tmp_path, **{f"weight a{ending}": np.array([1.0, 2.0 + value])})
        assert list(wrong.failures()) == [f"{TITLE} float64 top2: weight a differs by 2.5e-01 (bound 1e-06)"]


def test_in_bf16_a_single_gradient_is_judged_where_no_sum_is_cut(tmp_path):
    for mp, failed in ((1, True), (2, False)):
        case = replace(CASE, precision="bf16", ep=1, mp=mp, layout="gshard" if mp == 1 else "model")
        assert row(tmp_path, case, **{"gradient of a": np.array([1.0, -9.0])}).failed == failed
        assert row(tmp_path, case, norm=np.array([2.1, 1.5])).failed


def reference(**changes):
    """Return a reference of four steps, with the values that runs of fewer steps need."""
    whole = outcome()
    more = {name: np.concatenate((whole[name], whole[name] + 1)) for name in ("loss", "norm", "served")}
    late = {"later gradient of a": np.array([5.0]), "early weight a": np.array([7.0, 8.0])}
    return {**whole, **more, **late, **changes}


def test_a_short_run_is_compared_with_the_first_steps(tmp_path):
    save_file(reference(), tmp_path / f"{CASE.reference}.safetensors")
    save_file(outcome(**{"weight a": np.array([7.0, 8.0])}), tmp_path / f"{CASE.name}.safetensors")
    assert not compare_case(CASE, tmp_path).failed
    save_file(outcome(), tmp_path / f"{CASE.name}.safetensors")  # weights of four steps
    assert [failure.split(": ")[1] for failure in compare_case(CASE, tmp_path).failures()] == [
        "weight a differs by 7.5e-01 (bound 1e-06)"
    ]


def test_steps_after_a_checkpoint_are_compared_with_the_same_steps(tmp_path):
    target = Target(case=CASE, sources=[replace(CASE, ep=1), replace(CASE, world=4)])
    whole = reference()
    save_file(whole, tmp_path / f"{CASE.reference}.safetensors")
    same = {name: whole[name][1:3] for name in ("loss", "norm", "served")}
    same |= {"gradient of a": np.array([5.0]), "weight a": np.array([7.0, 8.0])}
    rows = []
    for source, loss in zip(target.sources, (0.0, 0.1), strict=True):
        save_file(
            {**same, "loss": same["loss"] + np.array([0.0, loss])}, tmp_path / f"{target.name(source)}.safetensors"
        )
        rows.append(compare_resumption(target, source, 2, tmp_path))
    assert not rows[0].failed
    assert list(rows[1].failures()) == [
        f"{TITLE} float64 top2 from a checkpoint of world=4 mesh=2x2x1 layout=gshard ZeRO=1 accumulation=1: "
        "loss of step 3 differs by 2.0e-02 (bound 1e-08)"
    ]
    combined = line(worst(CASE, rows))
    assert "from 2 others" in combined
    assert combined.endswith("FAIL")


def test_the_whole_plan():
    """top2 has six topologies of gshard, each with ZeRO 1 and 2 and accumulation 1 and 4. Other gates have three.

    All topologies with a model axis are in the plan, and layouts of no recipe where they differ.
    """
    jobs = plan(VerifyConfig(), Path("out"))
    assert [world for world, _ in jobs] == [1, 2, 4, 1, 2]
    cases = [case for _, job in jobs for case in job.cases if case.ep]
    proofs = [case for case in cases if case.precision == "float64"]
    main = {(c.world, c.ep, c.zero_stage, c.accumulation) for c in proofs if (c.gate, c.layout) == ("top2", "gshard")}
    topologies = [(1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (4, 4)]
    assert main == {(w, ep, zero, n // w) for w, ep in topologies for zero in (1, 2) for n in (4, 16)}
    model = {(c.mesh, c.zero_stage, c.accumulation) for c in proofs if (c.gate, c.layout) == ("top2", "model")}
    meshes = {"1x1x2": 4, "2x1x2": 2, "1x2x2": 2, "1x1x4": 4}
    assert model == {(mesh, zero, number) for mesh, number in meshes.items() for zero in (1, 2)}
    assert {(c.layout, c.mesh) for c in proofs if c.layout not in OF_RECIPES} == {
        ("hidden", "1x2x2"),
        ("copied", "1x2x2"),
        *(("summed", mesh) for mesh in ("1x1x2", "2x1x2", "1x1x4")),
    }
    assert {c.precision for c in cases if c.layout == "model"} == {"float64", "fp32", "bf16"}
    for gate in GATES:
        if gate != "top2":
            assert len({(c.world, c.ep) for c in proofs if c.gate == gate and c.layout == "gshard"}) == 3
    assert len(cases) == len({case.name for case in cases})
    references = [case.reference for case in jobs[0][1].cases if not case.ep]
    assert len(references) == len(set(references))
    assert {case.reference for case in cases} == set(references)


def test_checkpoints_of_the_plan():
    """Each topology of the recipes' layouts continues once from every other one, after that one has saved."""
    pairs, saved = [], set()
    for _, job in plan(VerifyConfig(), Path("out")):
        saved |= {case.name for case in job.cases if case.ep} & set(job.saved)
        for target in job.targets:
            pairs += [(source.name, target.case.name) for source in target.sources]
            assert {source.name for source in target.sources} <= saved
    assert len(saved) == 6 + 4
    assert sorted(pairs) == sorted((a, b) for a in saved for b in saved if a != b)
    for config in (VerifyConfig(resume=False), VerifyConfig(steps=2)):
        assert not any(job.targets or job.saved for _, job in plan(config, Path("out")))


def test_options():
    config = parse(["worlds=[1,2]", "gates=[top2]", "precisions=[float64]", "steps=3"])
    assert config == VerifyConfig(worlds=[1, 2], gates=["top2"], precisions=["float64"], steps=3)
    config = parse(["activation=swiglu", "norm=rms", "worlds=[1,2]"])
    for _, job in plan(config, Path("out")):
        assert {(c.model.activation, c.model.norm) for c in job.cases} <= {("swiglu", "rms")}
        assert {(t.case.activation, t.case.norm) for t in job.targets} <= {("swiglu", "rms")}
    config = parse(["layouts=[gshard]", "resume=false"])
    assert config == VerifyConfig(layouts=["gshard"], resume=False)
    for argument, message in {
        "steps": "steps is no key=value",
        "step=3": "did you mean steps",
        "gates=[top3]": "top3 does not exist",
        "worlds=[3]": "3 processes divide none of groups",
        "layouts=[modell]": "modell does not exist; there are gshard, model, hidden, summed, copied",
        "precisions=[]": "precisions is empty",
        "activation=gelu": "'gelu' is not one of relu, swiglu",
        "precisions=[fp16]": "'fp16' is not one of",
    }.items():
        with pytest.raises(ValueError, match=message):
            parse([argument])
    with pytest.raises(ValueError, match="nothing is run of layouts"):
        parse(["worlds=[1,2]", "layouts=[copied]"])


def test_layouts_are_those_of_the_recipes():
    assert LAYOUTS["gshard"] == layout.GSHARD
    assert LAYOUTS["model"] == {**layout.GSHARD, "H": ("model",), "N": ("model",), "V": ("model",)}
