"""Tasks as jobs that submitit queues, on submitit's own processes of this machine."""

import logging
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest

from pipeline.config import load_config
from pipeline.tasks import DataConfig, JobConfig, TaskFailed, check_launcher, run_tasks
from pipeline.tasks.jobs import parameters
from tests.conftest import ROOT
from tests.unit.tasks import work
from tests.unit.tasks.test_tasks import SAMPLE, gone
from tests.unit.tasks.work import Lines

pytest.importorskip("submitit")

JOBS = DataConfig(launcher="submitit", jobs=JobConfig(cluster="local", retries=1))


@pytest.fixture
def run(tmp_path):
    return partial(run_tasks, config=JOBS, directory=tmp_path / "log", title="count")


def shards(directory, bounds, **more):
    return [Lines(str(SAMPLE), start, stop, str(directory / str(start)), **more) for start, stop in pairwise(bounds)]


def test_jobs_give_what_this_process_does_and_a_lost_one_is_queued_again(run, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    payloads = shards(tmp_path, (0, 100, 1000))
    payloads[1] = Lines(**{**vars(payloads[1]), "die": str(tmp_path / "died")})
    assert run(work.digest_once, payloads) == [work.digest_lines(shard) for shard in payloads]
    assert sorted((tmp_path / "ran").read_text().split()) == ["0", "100", "100"]
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "count: task 2 of 2: job " in warning
    assert warning.endswith("queued again, 1 of 1")
    left = sorted(path.suffix for path in (tmp_path / "log" / "jobs").iterdir())
    assert set(left) == {".out", ".err"}


def test_a_task_whose_jobs_are_always_lost_is_an_error(run):
    config = replace(JOBS, jobs=replace(JOBS.jobs, retries=0))
    with pytest.raises(TaskFailed, match=r"task 1 of 1: job \d+ ended without .* for the 1. time; finished tasks"):
        run(work.kill_own_process, [2], config=config)


def test_errors_and_logs_of_jobs_arrive_here(run, caplog):
    caplog.set_level(logging.WARNING)
    with pytest.raises(ValueError, match=r"^data.tsv:7: 3 fields where 2 were expected; fix the line$"):
        run(work.warn_and_fail, ["value"])
    assert [record.getMessage() for record in caplog.records] == ["rows 3 are few"]


COMMAND = """
import sys
from pathlib import Path
from pipeline.ending import handle_signals, run_to_end
from pipeline.tasks import run_tasks
from tests.unit.tasks.test_jobs import JOBS
from tests.unit.tasks.work import wait_in

where = sys.argv[1]
handle_signals()
run = lambda: run_tasks(wait_in, [where], config=JOBS, directory=Path(where).with_name("log"), title="waiting")
sys.exit(run_to_end(run))
"""


def test_a_signal_cancels_the_jobs(tmp_path):
    where = tmp_path / "waiting"
    where.mkdir()
    command = [sys.executable, "-c", COMMAND, str(where)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not (jobs := [int(path.name) for path in where.iterdir()]):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGTERM)
    _, output = process.communicate(timeout=20)
    assert process.returncode == 75, output
    assert "Traceback" not in output
    assert all(gone(job) for job in jobs)


def test_settings_come_from_the_configuration():
    words = ["runtime.data.launcher=submitit", 'runtime.data.jobs.options=["account=nlp",exclusive]']
    config = load_config(words).runtime.data
    assert config == DataConfig(workers=2, launcher="submitit", jobs=JobConfig(options=["account=nlp", "exclusive"]))
    assert config.stages_at_once > load_config([]).runtime.data.stages_at_once == 2


def test_what_sbatch_is_told():
    config = JobConfig(partition="cpu", setup=["module load python"], options=["account=nlp", "exclusive"])
    settings = parameters(config, "count-1", single=True)
    assert settings["slurm_additional_parameters"] == {"account": "nlp", "exclusive": True}
    assert settings["slurm_setup"] == ["unset SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID", "module load python"]
    assert parameters(config, "count-1", single=False)["slurm_setup"] == ["module load python"]
    assert parameters(JobConfig(), "count-1", single=False)["slurm_partition"] is None


def test_a_host_without_slurm_is_refused_before_work(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match=r"runtime.data.launcher=submitit needs sbatch, which is not on this host's"):
        check_launcher(DataConfig(launcher="submitit"))
    check_launcher(DataConfig())
    check_launcher(JOBS)


def test_a_missing_submitit_is_refused_before_work(monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ValueError, match=r"needs the package submitit: install it by .*\[cluster\]"):
        check_launcher(JOBS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"workers": 0}, r"runtime.data.workers=0 must be at least 1"),
        ({"shard_rows": 0}, r"runtime.data.shard_rows=0 must be at least 1"),
        ({"launcher": "slurm"}, r"runtime.data.launcher='slurm' is not one of local, submitit"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        DataConfig(**settings)


def test_settings_of_jobs_are_checked():
    with pytest.raises(ValueError, match=r"runtime.data.jobs.cluster='lsf' is not one of slurm, local"):
        JobConfig(cluster="lsf")
    with pytest.raises(ValueError, match=r"runtime.data.jobs.retries=-1 must be at least 0"):
        JobConfig(retries=-1)
