"""`make verify`: in a short form it finds nothing, and with a wrong partition it says what is wrong."""

from pathlib import Path

import pytest

from pipeline.verify import command
from pipeline.verify.command import verify
from pipeline.verify.config import VerifyConfig


def rows(output):
    """The table's rows as lists of cells, without the heading."""
    return [line.split() for line in output.splitlines() if line.endswith(("ok", "FAIL"))]


def test_short_form(capsys):
    verify(VerifyConfig(worlds=[1, 2], groups=[4], precisions=["float64", "fp32"], gates=["top2", "dropless"], steps=3))
    output = capsys.readouterr().out
    found = rows(output)
    # top2: three topologies, two stages; dropless: one; each in float64, in fp32 and replayed
    assert len(found) == (3 * 2 + 1) * 3
    assert {row[-1] for row in found} == {"ok"}
    proofs = [row for row in found if "float64" in row]
    assert {tuple(row[:4]) for row in proofs if "top2" in row} == {
        (world, ep, zero, str(4 // int(world))) for world, ep in (("1", "1"), ("2", "1"), ("2", "2")) for zero in "12"
    }
    for row in proofs:  # of float64's 2e-16
        assert float(row[6]) <= 1e-14, row
        assert float(row[7]) <= 1e-14, row
    assert f"{len(found)} comparisons, 0 beyond their bounds" in output


def test_a_wrong_partition_is_named(capsys, monkeypatch):
    monkeypatch.setattr(command, "WORKER", "tests.parallel.wrong_verify_worker")
    monkeypatch.chdir(Path(__file__).resolve().parents[2])
    config = VerifyConfig(worlds=[2], groups=[4], zero_stages=[1], precisions=["float64"], gates=["top2"], steps=2)
    with pytest.raises(ValueError, match="not the same on every topology") as raised:
        verify(config)
    assert [row[-1] for row in rows(capsys.readouterr().out)] == ["ok", "FAIL"]  # ep=1 has nothing to scale
    message = str(raised.value)
    assert "world=2 ep=2 ZeRO=1 accumulation=2 float64 top2: gradient of " in message
    assert ".feed_forward.experts.w" in message
    assert "differs by 1.0e+00 (bound 1e-12)" in message
    assert "ep=1" not in message
    assert "clip norm of step 1" in message
