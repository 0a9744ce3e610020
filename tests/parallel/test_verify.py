"""`make verify` finds no deviation."""

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
