"""`make sweep` as a user starts it: trained, again, damaged, stopped and killed; and what docs/sweeps.md says."""

import csv
import json
import re
import shlex
import shutil
import signal
import subprocess
import time

import psutil
import pytest

from pipeline.config import ROOT
from pipeline.model.flops import forward_flops
from pipeline.sweep.command import plan
from pipeline.sweep.config import load_sweep
from tests.make import words_of
from tests.system.place import Place, run

TEXT = (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8")
BLOCKS = [line for block in re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()]
TINY = [
    "pairs=[tr-en]",
    "baselines.tiers=[]",
    "train.max_tokens=30000",
    "train.validate_every=20",
    "runtime.processes=1",
    "runtime.ep=1",
    "decode.beam=1",
    "score.resamples=100",
]
GRID = [*TINY, "compare=[active]", "losses=[8.0,7.5]", "hydra.launcher.n_jobs=2"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place(tmp_path_factory.mktemp("sweep"))


@pytest.fixture(scope="module")
def swept(place):
    settings = ["EXPERTS=4", "LAYERS=4", "NAME=grid", "LAUNCHER=joblib"]
    process = run([*place.command(*GRID, target="sweep"), *settings], timeout=600)
    assert process.returncode == 0, process.stderr
    return place.root / "runs" / "grid"


def again(place, *overrides):
    """The command below make, whose exit code is its own."""
    words = ["recipes=smoke", "model.moe.num_experts=4", "layers=4", "name=grid", "hydra/launcher=joblib", *GRID]
    return run(place.python("sweep", *words, *overrides), timeout=300)


def test_every_point_is_a_run_and_the_page_has_them_all(swept):
    with (swept / "sweep.csv").open(encoding="utf-8") as stream:
        rows = {row["id"]: row for row in csv.DictReader(stream)}
    assert set(rows) == {"4e_4l", "dense_4l"}
    assert (swept / "report.html").stat().st_size > 10_000
    record = json.loads((swept / "sweep.json").read_text(encoding="utf-8"))
    points = {entry["id"]: entry for entry in record["points"]}
    assert {name: entry["role"] for name, entry in points.items()} == {
        "data": "shared",
        "4e_4l": "point",
        "dense_4l": "active",
    }
    assert points["4e_4l"]["compared"] == {"active": "dense_4l"}
    real = {}
    for name in rows:
        run = json.loads((swept / name / "run.json").read_text(encoding="utf-8"))
        assert (run["name"], run["config"]["runtime"]["runs"].split("/")[-1]) == (name, "grid")
        real[name] = run["systems"]["moe"][0]["parameters"]
        assert (swept / f"{name}.log").exists()
    planned = {name: points[name]["parameters"] for name in rows}  # of vocabularies as large as was asked for
    assert planned["4e_4l"] - planned["dense_4l"] == real["4e_4l"] - real["dense_4l"] > 0
    tokens = {
        name: json.loads((swept / name / "metrics.jsonl").read_text().splitlines()[-1])["target_tokens"]
        for name in rows
    }
    assert len(set(tokens.values())) == 1, "equal batches"


def test_the_same_command_finds_nothing_to_do(place, swept):
    before = (swept / "report.html").stat().st_mtime_ns
    process = again(place)
    assert process.returncode == 0, process.stderr
    assert "nothing to do: all 2 points are done" in process.stderr
    assert (swept / "report.html").stat().st_mtime_ns == before


def test_a_point_that_fails_is_tried_again_named_and_stops_no_other(place, swept):
    """Its model is damaged on the disk, which is found each time."""
    record = json.loads((swept / "4e_4l" / "run.json").read_text(encoding="utf-8"))
    model = place.root / "artifacts" / record["systems"]["moe"][0]["artifacts"]["model"]
    state = next(model.rglob("state.json"))
    state.write_text("", encoding="utf-8")
    for name in ("4e_4l", "dense_4l"):
        shutil.rmtree(swept / name)
    process = again(place)
    assert process.returncode == 1, process.stderr
    assert "4e_4l: exit code 1; is started again, 1 of 1" in process.stderr
    last = process.stderr[process.stderr.index("error: ") :]
    assert "1 of 2 points failed in each of 2 attempts; the same command tries again" in last
    assert f"4e_4l: exit code 1; {swept / '4e_4l.log'} ends:" in last
    assert f"error: artifact train/{model.name} is damaged" in last
    assert "Traceback" not in process.stderr
    assert (swept / "dense_4l" / "run.json").exists()
    assert (swept / "4e_4l.log").read_text().count(" UTC: python -m pipeline train") == 3
    with (swept / "sweep.csv").open(encoding="utf-8") as stream:
        assert [row["id"] for row in csv.DictReader(stream)] == ["dense_4l"]


def test_the_directory_of_a_run_is_no_place_for_a_sweep(place, swept):
    shutil.copytree(swept / "dense_4l", swept.with_name("finished"))
    process = again(place, "name=finished")
    assert process.returncode == 1
    assert "is a run, no sweep" in process.stderr


def start(place, *overrides):
    words = ["recipes=smoke", "model.moe.num_experts=4", *TINY, "train.max_tokens=100000", "compare=[]", "name=long"]
    command = place.python("sweep", *words, *overrides)
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def wait_for_training(place, process, beyond):
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[1]
        for metrics in (place.root / "artifacts" / "train").glob("*.partial/log/metrics.jsonl"):
            lines = [line for line in metrics.read_text().splitlines(keepends=True) if line.endswith("\n")]
            if lines and json.loads(lines[-1])["step"] > beyond:
                return metrics.parent.parent, json.loads(lines[-1])["step"]
        time.sleep(0.1)
    raise AssertionError("no training step in 300 s")


def test_stopped_by_a_file_by_ctrl_c_and_killed_a_sweep_goes_on(tmp_path):
    place, step = Place(tmp_path), 0
    runs = tmp_path / "runs" / "long"
    process = start(place)
    _, step = wait_for_training(place, process, step)
    (runs / "stop").touch()
    _, output = process.communicate(timeout=150)
    assert process.returncode == 75, output
    assert "stopped; the same command goes on from here" in output

    process = start(place)
    partial, step = wait_for_training(place, process, step)
    process.send_signal(signal.SIGINT)
    _, output = process.communicate(timeout=150)
    assert process.returncode == 130, output
    saved = sorted((partial / "checkpoints").glob("step-*"))
    assert int(saved[-1].name.removeprefix("step-")) >= step

    process = start(place)
    _, step = wait_for_training(place, process, step)
    (training,) = trainings_of(process)
    process.kill()
    process.wait()
    training.wait(timeout=100)  # it ends with the sweep

    process = start(place)  # and a training that is killed is tried again, from its checkpoint
    wait_for_training(place, process, step)
    (training,) = trainings_of(process)
    training.kill()
    _, output = process.communicate(timeout=600)
    assert process.returncode == 0, output
    assert "4e_4l: exit code 1; is started again, 1 of 1" in output
    log = (runs / "4e_4l.log").read_text()
    assert log.count("resuming what was interrupted") == 4
    assert "was killed by SIGKILL" in log


def trainings_of(sweep):
    """Training processes that the sweep's own processes have started."""
    processes = psutil.Process(sweep.pid).children(recursive=True)
    return [process for process in processes if "pipeline.train" in process.cmdline()]


def test_the_commands_of_the_page_compose():
    sweeps = [command for command in BLOCKS if command.startswith("make sweep")]
    assert len(sweeps) == 5
    for command in sweeps:
        target, words = words_of(command.split("  #")[0])
        assert target == "sweep"
        assert plan(load_sweep(words)).points, command
    first = plan(load_sweep(words_of(sweeps[0].split("  #")[0])[1]))
    names = [point.id for point in first.points]
    assert re.findall(r"`((?:dense_)?(?:params_)?\d*e?_?\d+l)`", TEXT.split("## Where do points run?")[0]) == names
    settings = re.findall(r"^\| `([a-z_]+=[^`]+)`", TEXT, re.MULTILINE)
    assert len(settings) == 3
    for setting in settings:
        load_sweep([*words_of(sweeps[0].split("  #")[0])[1], *shlex.split(setting)])


def test_the_flops_that_a_plan_states_are_those_of_the_model():
    for point in plan(load_sweep(["recipes=smoke", *GRID, "hydra/launcher=joblib", "model.moe.num_experts=4"])).points:
        forward = forward_flops(point.config.model, point.config.vocab.target_size)
        assert point.training_flops == 3 * (forward.source_token + forward.target_token) * 30000
