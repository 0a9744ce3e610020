"""`make verify` finds no deviation in a short form, and names what a wrong partition breaks."""

from pathlib import Path

import pytest

from pipeline.verify import command
from pipeline.verify.command import verify
from pipeline.verify.config import VerifyConfig


def rows(output):
    """Return the table's rows as lists of cells, without the headings."""
    return [line.split() for line in output.splitlines() if line.endswith(("ok", "FAIL"))]


def test_short_form(capsys):
    verify(
        VerifyConfig(
            worlds=[1, 2],
            groups=[4],
            precisions=["float64", "fp32"],
            gates=["top2", "dropless"],
            zero_stages=[2],
            steps=3,
            resume=False,
        )
    )
    output = capsys.readouterr().out
    table = rows(output)
    # top2: three topologies; dropless: one; each in float64, in fp32 and replayed
    assert len([row for row in table if "gshard" in row]) == (3 + 1) * 3
    assert {row[-1] for row in table} == {"ok"}
    proofs = [row for row in table if "float64" in row]
    assert {tuple(row[:5]) for row in proofs if "top2" in row} == {
        *((world, mesh, "gshard", "2", str(4 // int(world))) for world, mesh in GSHARD),
        ("2", "1x1x2", "model", "2", "4"),
        ("2", "1x1x2", "summed", "2", "4"),
    }
    for row in proofs:  # float64 rounds by 2e-16
        assert float(row[7]) <= 1e-14, row
        assert float(row[8]) <= 1e-14, row
    assert f"{len(table)} comparisons, 0 beyond their bounds" in output


def test_checkpoints_go_from_every_topology_to_every_other(capsys):
    verify(VerifyConfig(groups=[4], precisions=["float64"], gates=["top2"], steps=6))
    output = capsys.readouterr().out
    table = rows(output)
    assert {row[-1] for row in table} == {"ok"}
    resumed = [row for row in table if "from" in row]
    assert len(resumed) == len(MESHES)
    assert {(row[1], row[2]) for row in resumed} == MESHES
    assert {row[7] for row in resumed} == {str(len(MESHES) - 1)}
    assert {row[3] for row in resumed} == {"1", "2"}  # runs also continue under another stage of ZeRO


MESHES = {
    *((mesh, "gshard") for mesh in ("1x1x1", "2x1x1", "1x2x1", "4x1x1", "2x2x1", "1x4x1")),
    *((mesh, "model") for mesh in ("1x1x2", "2x1x2", "1x2x2", "1x1x4")),
}
GSHARD = [("1", "1x1x1"), ("2", "2x1x1"), ("2", "1x2x1")]


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
