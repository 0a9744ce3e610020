"""The benchmark of augmentation on its smallest setting: four trainings, their challenge sets, one table."""

import csv

from eval.records.challenge import KINDS, PLAIN
from pipeline.config import ROOT
from tests.system.place import Place, run


def test_the_command_trains_both_ways_and_prints_a_table(tmp_path):
    place = Place(tmp_path)  # not the smoke run's, whose record says that it made everything itself
    command = [str(ROOT / ".venv/bin/python"), "-m", "bench.quality.augmentation", "--quick", "--recipe", "smoke"]
    options = ["--resamples", "100", "--out", str(tmp_path / "out.csv"), "pairs=[de-en]", *place.directories]
    process = run([*command, *options], timeout=900)
    assert process.returncode == 0, process.stderr
    with (tmp_path / "out.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["kind"] for row in rows] == [PLAIN, *KINDS]
    assert {row["seeds"] for row in rows} == {"1 2"}
    assert "chrF++ lost on changed lines, smoke on" in process.stdout
    names = sorted(path.name.rpartition("-")[0] for path in (place.root / "runs").glob("augment-*"))
    assert names == [f"augment-smoke-{way}-{seed}" for way in ("with", "without") for seed in (1, 2)]
    again = run([*command, *options], timeout=300)
    assert again.returncode == 0, again.stderr
    assert "train moe: running" not in again.stderr
