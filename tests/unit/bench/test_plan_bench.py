"""The planner's benchmark: its configurations, the fit of rates, and its verdicts."""

import csv
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from bench.plan import cases
from bench.plan.calibration import as_yaml, fit
from bench.plan.case import Case
from bench.plan.measuring import Measured
from bench.plan.table import COLUMNS, row, table
from pipeline.config import ROOT
from pipeline.plan.devices import load_device
from pipeline.plan.plan import make_plan
from tests.plans import device_of

CASE = Case(dim=64, layers=2, experts=4, world=2, ep=2, vocabulary=500)
DEVICE = device_of(kind="cpu", launch=1e-5, latency=1e-4)


def measured_as(case, device, **changes):
    """Return the measurement of a machine that behaves exactly as planned."""
    plan = make_plan(case.workload, case.setup, device)
    values = {"parameters": plan.parameters.per_device, "peak": plan.memory.total, "seconds": plan.step.seconds}
    return Measured(
        **{**values, "before": 0.0, "memory_source": "process", "slowest": 1.0, "reference": (1.0, 1.0), **changes}
    )


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_twelve_are_predicted_and_none_of_them_is_calibrated_with(device):
    fitted, predicted = cases.of(device, quick=False)
    assert len(set(predicted)) >= 12
    assert not set(fitted) & set(predicted)
    for case in (*fitted, *predicted):
        make_plan(case.workload, case.setup, DEVICE)  # sizes divide
    assert {case.recompute for case in predicted} >= {"none", "selective", "all"}
    assert len({case.dim for case in predicted}) >= 3
    assert device == "cuda" or {(case.world, case.ep, case.mp) for case in predicted} == {
        (1, 1, 1),
        (2, 1, 1),
        (2, 2, 1),
        (2, 1, 2),
    }


def test_rates_that_made_the_steps_are_found_again():
    """The fit predicts other configurations. Its single rates may differ, as steps do not tell all parts apart."""
    shares = {"projections": 0.6, "dense": 0.7, "experts": 0.4, "logits": 0.5, "optimizer": 0.6, "attention": 0.3}
    true = replace(DEVICE, efficiency={**shares, "gate": 0.5, "dispatch": 0.6, "embedding": 0.6})
    fitted, predicted = cases.of("cpu", quick=False)
    device = fit(DEVICE, {case: measured_as(case, true) for case in fitted})
    for case in predicted:
        step = make_plan(case.workload, case.setup, device).step.seconds
        assert step == pytest.approx(make_plan(case.workload, case.setup, true).step.seconds, rel=0.1)


def test_rates_are_read_as_they_were_written(tmp_path):
    device = replace(DEVICE, name="cpu", efficiency={"dense": 0.5, "all_to_all": 0.25})
    (tmp_path / "cpu.yaml").write_text(as_yaml(device))
    read = load_device(str(tmp_path / "cpu.yaml"))
    assert replace(read, source="", price=0.0) == replace(device, source="", price=0.0)


def test_what_is_off_is_missed():
    plan = row(CASE, DEVICE, measured_as(CASE, DEVICE), "round")
    assert plan["verdict"] == "met"
    assert tuple(plan) == COLUMNS
    right = measured_as(CASE, DEVICE)
    for changes, verdict in (
        ({"peak": right.peak * 1.12}, "missed: memory"),
        ({"peak": right.peak * 0.92}, "met"),
        ({"seconds": right.seconds / 1.25}, "missed: seconds"),
        ({"seconds": right.seconds / 1.18}, "met"),
        ({"parameters": right.parameters + 1, "seconds": right.seconds * 2}, "missed: parameters, seconds"),
    ):
        judged = row(CASE, DEVICE, replace(right, **changes), "round")
        assert judged["verdict"] == verdict
        assert table([judged]).endswith(verdict)


def test_it_calibrates_and_predicts(tmp_path):
    environment = {**os.environ, "PYTHON": sys.executable, "RUNTIME": "cpu", "OUT": str(tmp_path)}
    process = subprocess.run(
        ["bench/gpu.sh", "plan", "--quick"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    with (tmp_path / next(tmp_path.glob("plan-*.csv"))).open(encoding="utf-8", newline="") as file:
        (judged,) = csv.DictReader(file)
    assert judged["parameters"] == judged["parameters_measured"]
    assert float(judged["memory_ratio"]) == pytest.approx(1, abs=0.1)
    assert load_device(str(tmp_path / "cpu.yaml")).resident > 1e8
