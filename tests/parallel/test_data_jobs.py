"""Data tasks run as a job array of a real Slurm."""

import logging
import os
import signal
import subprocess
import sys
import time
from functools import partial
from itertools import pairwise

import pytest

from pipeline.tasks import DataConfig, JobConfig, TaskFailed, run_tasks
from pipeline.tasks.cluster import Slurm
from tests.conftest import ROOT
from tests.parallel.slurm import two_nodes
from tests.unit.tasks import work
from tests.unit.tasks.test_tasks import SAMPLE, gone

pytest.importorskip("submitit")

JOBS = JobConfig(minutes=5, memory_gb=1, retries=1)
COMMAND = """
import sys
from pathlib import Path
from pipeline.ending import handle_signals, run_to_end
from pipeline.tasks import DataConfig, run_tasks
from tests.parallel.test_data_jobs import JOBS
from tests.unit.tasks.work import wait_in

where = sys.argv[1]
config = DataConfig(launcher="submitit", jobs=JOBS)
handle_signals()
run = lambda: run_tasks(wait_in, [where] * 3, config=config, directory=Path(where).with_name("log"), title="waiting")
sys.exit(run_to_end(run))
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    with two_nodes(tmp_path_factory.mktemp("slurm") / "cluster") as environment:
        yield environment


@pytest.fixture
def run(slurm, tmp_path, monkeypatch):
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, slurm[name])
    monkeypatch.setattr(Slurm, "query", 1.0)
    monkeypatch.setattr(Slurm, "late", 3.0)
    config = DataConfig(launcher="submitit", jobs=JOBS)
    return partial(run_tasks, config=config, directory=tmp_path / "log", title="count")


def queued():
    return subprocess.run(
        ["squeue", "-h", "-r", "--format=%i"], capture_output=True, text=True, check=True
    ).stdout.split()


def wait_until_none_is_queued():
    deadline = time.monotonic() + 60
    while queued():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_an_array_gives_what_this_process_does_and_a_lost_job_is_queued_again(run, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    died = str(tmp_path / "died")
    shards = [
        work.Lines(str(SAMPLE), start, stop, str(tmp_path / str(start)), died if start == 100 else "")
        for start, stop in pairwise((0, 100, 1000, 3000))
    ]
    assert run(work.digest_once, shards) == [work.digest_lines(shard) for shard in shards]
    assert sorted((tmp_path / "ran").read_text().split()) == ["0", "100", "100", "1000"]
    messages = [record.getMessage() for record in caplog.records]
    assert any("count: task 2 of 3: job" in message and "queued again, 1 of 1" in message for message in messages)
    left = list((tmp_path / "log" / "jobs").iterdir())
    assert {path.suffix for path in left} == {".out", ".err", ".sh"}
    assert not any(path.is_symlink() for path in left)


def test_a_single_job_from_within_a_job_of_an_array(run, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "80")
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "77")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    monkeypatch.setenv("SLURM_MEM_PER_CPU", "500")
    assert [threads for _, _, threads in run(work.place, [0])] == ["1 1"]
    with pytest.raises(ValueError, match=r"^data.tsv:7: 3 fields where 2 were expected; fix the line$"):
        run(work.fail, ["value"])


def test_what_the_cluster_refuses_is_said(run):
    wait_until_none_is_queued()  # jobs of the previous test
    config = DataConfig(launcher="submitit", jobs=JobConfig(partition="none"))
    with pytest.raises(TaskFailed, match=r"refuses the jobs: sbatch: error: invalid partition .*; change runtime.data"):
        run(work.place, [0], config=config)
    assert queued() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_jobs_end_with_their_command_or_with_the_next(run, tmp_path, number):
    where = tmp_path / "waiting"
    where.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(where)], cwd=ROOT, env=os.environ, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while len(jobs := [int(path.name) for path in where.iterdir()]) < 2:  # one on each node
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.kill(process.pid, number)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == {signal.SIGINT: 130, signal.SIGKILL: -9}[number], errors
    assert "Traceback" not in errors
    if number == signal.SIGKILL:  # the command could not cancel them
        assert len(queued()) == 3
        assert len(run(work.place, [0, 1], title="waiting")) == 2
    assert all(gone(job, within=20) for job in jobs)
    wait_until_none_is_queued()
