"""The MoE benchmark: it runs, its ratios come from its times, and its memory count agrees with arithmetic."""

import csv
import subprocess
import sys

import pytest
import torch

from bench.moe.__main__ import add_memory
from bench.moe.bounds import dense
from bench.moe.case import Place
from bench.moe.jobs import CPU, CUDA, GATES, PARTS, PEERS, jobs
from bench.moe.memory import extra_memory, peak_without
from bench.moe.size import Size
from bench.moe.table import COLUMNS, judge, table
from bench.moe.targets import DISPATCH_AND_COMBINE, OURS_WITHOUT_EXPERTS, Check
from bench.moe.timing import interleave
from bench.moe.variants import VARIANTS
from bench.output import ORIGIN, slug
from pipeline.config import ROOT

SIZE = Size(model=16, hidden=32, tokens=64, experts=4)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """Return the rows of the CSV of a real quick run of the layer section, and its printed output."""
    out = tmp_path_factory.mktemp("bench") / "moe.csv"
    command = [sys.executable, "-m", "bench.moe", "--quick", "--sections", "layer", "--experts", "4", "--out", str(out)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert process.returncode == 0, process.stderr
    with out.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        assert tuple(reader.fieldnames) == (*COLUMNS, *ORIGIN)
        return list(reader), process.stdout


def test_every_variant_has_a_time_or_says_why_not(quick):
    rows, printed = quick
    assert [row["variant"] for row in rows] == [
        *("matmul", "dense", "ideal", "ours", *PEERS, OURS_WITHOUT_EXPERTS, *PARTS, DISPATCH_AND_COMBINE)
    ]
    for row in rows:
        assert bool(row["ms"]) != bool(row["note"]), row
        assert row["variant"] in printed
    assert not any(row["note"] for row in rows if row["variant"] not in PEERS)


def test_ratios_come_from_the_times(quick):
    rows = {row["variant"]: row for row in quick[0]}
    moe_ms, dense_ms = float(rows["ours"]["ms"]), float(rows["dense"]["ms"])
    rounding = 1e-4  # five significant digits in the file
    assert float(rows["ours"]["to_dense"]) == pytest.approx(moe_ms / dense_ms, rel=rounding)
    assert float(rows["dense"]["to_ours"]) == pytest.approx(dense_ms / moe_ms, rel=rounding)
    assert float(rows["ours"]["tflops"]) == pytest.approx(SIZE.flops / moe_ms / 1e9, rel=rounding)
    assert float(rows["ours"]["extra_mb"]) > 0


def test_memory_of_the_dense_layer_is_what_arithmetic_says():
    case = dense(SIZE, Place(device="cpu", precision="fp32"))
    case.run()
    extra = extra_memory(case)
    hidden = SIZE.tokens * SIZE.k * SIZE.hidden * 4
    output = SIZE.tokens * SIZE.model * 4
    weight = SIZE.k * SIZE.hidden * SIZE.model * 4
    peak = 3 * hidden + output  # the output; hidden values, their gradient after and before the ReLU
    assert extra.fresh == peak
    assert peak <= extra.accumulating <= peak + weight  # at most one new gradient waits to be added


def test_a_buffer_that_becomes_a_gradient_is_not_counted_but_what_lay_there_before_is():
    changes = [(1, 100), (2, 10), (1, -100), (1, 40), (3, 5), (2, -10)]
    assert peak_without(set(), changes) == 110
    assert peak_without({1}, changes) == 110
    assert peak_without({1}, changes[3:]) == 5


def row(variant, ms=None, **columns):
    common = {"section": "layer", "device": "cpu", "experts": 8, "dtype": "fp32", "threads": 1, "note": ""}
    return {**common, "variant": variant, "ms": ms, "ms_least": ms, "ms_most": ms, **columns}


def test_targets():
    rows = [
        row("matmul", 1.0, flops=4e9),
        row("dense", 10.0, flops=2e10),
        row("ours", 11.0, flops=2e10, extra_mb=120.0, accumulating_mb=100.0),
        row("deepspeed", 11.0, flops=2e10, extra_mb=100.0, accumulating_mb=100.0),
        row("nllb", 40.0, flops=2e10),
        row("lucidrains", note="ModuleNotFoundError"),
        row(OURS_WITHOUT_EXPERTS, 0.33),
    ]
    judged = {judged_row["variant"]: judged_row for judged_row in judge(rows)}
    assert (judged["dense"]["measured"], judged["dense"]["verdict"]) == (pytest.approx(1.1), "over")
    assert (judged["deepspeed"]["to_limit"], judged["deepspeed"]["verdict"]) == (1.0, "ok")
    assert (judged["deepspeed"]["memory_measured"], judged["deepspeed"]["memory_verdict"]) == (1.2, "over")
    assert judged["nllb"]["verdict"] == "ok"
    assert judged["lucidrains"]["verdict"] is None
    assert judged[OURS_WITHOUT_EXPERTS]["measured"] == pytest.approx(0.03)
    assert judged["dense"]["to_matmul"] == pytest.approx(0.5)
    assert "1.100/1.000 over" in table(list(judged.values()))


def test_growth_is_measured_against_the_fewest_experts():
    rows = [
        row(variant, ms, section="growth", experts=experts, extra_mb=extra)
        for experts, dispatch, combine, extra in ((8, 4.0, 6.0, 10.0), (2048, 5.0, 7.0, 12.0))
        for variant, ms in (("ours", 100.0), ("dispatch", dispatch), ("combine", combine))
    ]
    rows[4] |= {"ms_least": 4.5, "ms_most": 5.75}  # the dispatch to 2,048 experts
    rows[5] |= {"ms_least": 6.5, "ms_most": 7.25}
    judged = {(judged_row["variant"], judged_row["experts"]): judged_row for judged_row in judge(rows)}
    assert judged[DISPATCH_AND_COMBINE, 2048]["measured"] == pytest.approx(1.2)
    assert judged[DISPATCH_AND_COMBINE, 8]["measured"] is None
    assert judged[DISPATCH_AND_COMBINE, 2048]["ms_least"] == 11.0
    assert judged[DISPATCH_AND_COMBINE, 2048]["ms_most"] == 13.0
    assert judged["ours", 2048]["memory_measured"] == pytest.approx(1.2)


def test_a_rate_is_to_be_at_least_its_limit():
    assert Check(measured=0.6, limit=0.55, at_least=True).verdict == "ok"
    assert Check(measured=0.5, limit=0.55, at_least=True).to_limit == pytest.approx(1.1)


def test_rounds_are_interleaved_and_slow_variants_run_less(monkeypatch):
    order = []
    monkeypatch.setattr("bench.moe.timing.once", lambda case: order.append(case) or 1.0)
    names = {"a": "a", "b": "b", "slow": "slow", "very slow": "very slow"}
    warm = {"a": 1.0, "b": 1.0, "slow": 1.0, "very slow": 1e6}
    times = interleave(names, warm, seconds=60, rounds=3, slow=frozenset({"slow", "very slow"}))
    assert order == ["a", "b", "slow", "a", "b", "a", "b"]
    assert times["very slow"] == [1e6]


@pytest.mark.parametrize(("scale", "device"), [(CPU, "cpu"), (CUDA, "cuda")])
def test_every_planned_variant_exists(scale, device):
    sections = ("layer", "gates", "growth")
    job_list = jobs(scale, device=device, sections=sections, experts=(8,), dtypes=("fp32",), threads=(1,))
    assert [(job.section, job.memory) for job in job_list] == [(s, m) for s in sections for m in (False, True)]
    assert {name for job in job_list for name in job.variants} <= set(VARIANTS)


@pytest.mark.parametrize("gate", GATES)
def test_every_gate_can_be_timed(gate):
    torch.manual_seed(0)
    case = VARIANTS[f"ours {gate}"](SIZE, Place(device="cpu", precision="fp32"))
    case.run()
    assert all(weight.grad is not None for weight in case.weights if weight.dim() == 3)
    assert case.inputs[0].grad is not None


def test_memory_goes_to_the_rows_of_every_number_of_threads():
    rows = [row("ours", 1.0), row("ours", 2.0, threads=2), row("ours", 3.0, experts=32), row("dense", 4.0)]
    add_memory(rows, row("ours", threads=2, extra_mb=5.0))
    assert [(changed.get("extra_mb"), changed["ms"]) for changed in rows] == [(5, 1), (5, 2), (None, 3), (None, 4)]


def test_names_of_devices_make_file_names():
    assert slug("AMD EPYC 7B13 (64-Core)") == "amd-epyc-7b13-64-core"


def test_brackets_of_published_rows_hold_their_medians() -> None:
    with (ROOT / "bench" / "results" / "moe-amd-epyc.csv").open(newline="", encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if row["ms_least"]]
    assert {row["variant"] for row in rows} >= {"ours", "dispatch + combine"}
    assert [row for row in rows if not float(row["ms_least"]) <= float(row["ms"]) <= float(row["ms_most"])] == []
