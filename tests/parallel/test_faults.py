"""When a process is killed, stopped, cut off or missing, the others end soon with an error that names it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from pipeline.config import load_config
from pipeline.jobs.launch import STOPPED, JobFailed, launch
from pipeline.train.config import CheckpointConfig
from tests.parallel.conftest import assert_same_bits, make_job
from tests.parallel.hosts import two_hosts

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 3  # seconds of silence
TIME = 2 * LIMIT + 4  # seconds for all processes to end: the limit, a beat before and after it, and slow exits


@dataclass
class Processes:
    """Processes of one job that repeat an all-reduce, without a launcher that would see which one dies."""

    directory: Path
    by_rank: dict[int, subprocess.Popen]

    def ready(self):
        self.wait_for(lambda: all(self.rounds(rank) > 0 for rank in self.by_rank))

    def rounds(self, rank):
        with suppress(FileNotFoundError, ValueError):
            return int((self.directory / f"rank-{rank}.rounds").read_text())
        return -1

    def wait_for(self, condition):
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline
            assert all(process.poll() is None for process in self.by_rank.values()), self.output()
            time.sleep(0.02)

    def output(self):
        return "".join(path.read_text() for path in sorted(self.directory.glob("rank-*.out")))[-3000:]

    def send(self, number, *ranks):
        for rank in ranks:
            self.by_rank[rank].send_signal(number)

    def errors_of(self, *ranks, within):
        """Wait until these processes have failed and return their reports."""
        deadline = time.monotonic() + within
        for rank in ranks:
            assert self.by_rank[rank].wait(timeout=max(0.1, deadline - time.monotonic())) == 1, self.output()
        return [(self.directory / f"rank-{rank}.error").read_text() for rank in ranks]


@pytest.fixture
def start(tmp_path):
    """Start the processes `ranks` of a job of three. inside: words before the command of a rank."""
    processes = []

    def begin(*, store, ranks=(0, 1, 2), limit=LIMIT, timeout=60, fails=-1, interface="lo", inside=None):
        job = tmp_path / "job.json"
        job.write_text(json.dumps({"timeout": timeout, "heartbeat": limit, "fails": fails}))
        place = {"WORLD_SIZE": "3", "BABELSHARD_RENDEZVOUS": store, "GLOO_SOCKET_IFNAME": interface}
        by_rank = {}
        for rank in ranks:
            with (tmp_path / f"rank-{rank}.out").open("wb") as output:
                by_rank[rank] = subprocess.Popen(
                    [*(inside or {}).get(rank, []), sys.executable, "-m", "tests.parallel.collective_worker", str(job)],
                    cwd=ROOT,
                    env={**os.environ, **place, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
            processes.append(by_rank[rank])
        return Processes(tmp_path, by_rank)

    yield begin
    for process in processes:
        process.kill()
        process.wait()


def tcp():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{free.getsockname()[1]}"


@pytest.mark.quiet
def test_a_killed_process_is_named_by_those_that_lost_it(start):
    """The others lose a connection at once, and wait for the heartbeat to name the process."""
    job = start(store=tcp())
    job.ready()
    job.send(signal.SIGKILL, 1)
    for error in job.errors_of(0, 2, within=TIME):
        assert re.match(rf"process 1 of 3 has been silent for [{LIMIT}-9] s \(stopped, swapped out, or ", error)


@pytest.mark.quiet
def test_the_process_that_keeps_the_store_is_stopped(start):
    job = start(store=tcp())
    job.ready()
    job.send(signal.SIGSTOP, 0)
    for error in job.errors_of(1, 2, within=TIME):
        assert re.match(r"process 0 of 3, which serves the job's store at 127.0.0.1:\d+, (is lost|has not ans)", error)


@pytest.mark.quiet
def test_an_error_reaches_processes_of_other_launchers(start):
    job = start(store=tcp(), fails=1)
    own, *peers = job.errors_of(1, 0, 2, within=60)
    assert own == "an error of its own"
    assert peers == ["process 1 of 3 failed: an error of its own"] * 2


@pytest.mark.quiet
def test_a_process_that_never_comes_is_named(start, tmp_path):
    job = start(store=f"file://{tmp_path}/store", ranks=[0], timeout=2)
    assert job.errors_of(0, within=60) == ["processes 1, 2 of 3 did not join the job within 2 s"]


@pytest.mark.quiet
def test_a_process_that_never_comes_is_named_to_all(start):
    """The first process serves the store. It lives until the others know the missing one."""
    job = start(store=tcp(), ranks=[0, 2], timeout=10)
    assert job.errors_of(0, 2, within=60) == ["process 1 of 3 did not join the job within 10 s"] * 2


@pytest.mark.quiet
def test_a_job_that_was_suspended_as_a_whole_goes_on_and_stops_when_asked(start, tmp_path):
    """The job is suspended for longer than the limit, like by `scontrol suspend`. Then Slurm sends SIGUSR1 to one."""
    job = start(store=tcp(), limit=2)
    job.ready()
    job.send(signal.SIGSTOP, 0, 1, 2)
    time.sleep(4)
    job.send(signal.SIGCONT, 0, 1, 2)
    before = job.rounds(2)
    job.wait_for(lambda: job.rounds(2) > before + 100)
    job.send(signal.SIGUSR1, 1)
    assert [process.wait(timeout=10) for process in job.by_rank.values()] == [STOPPED] * 3
    assert not list(tmp_path.glob("*.error"))


@pytest.fixture
def hosts():
    with two_hosts() as pair:
        yield pair


@pytest.mark.quiet
def test_a_host_that_is_cut_off_is_named_on_both_sides(start, hosts):
    """Processes 1 and 2 are on the host whose cable is cut. Process 0 and the store are on the other host."""
    inside = {rank: hosts[0 if rank == 0 else 1].command([]) for rank in range(3)}
    job = start(store=f"tcp://{hosts[0].address}:29517", inside=inside, interface="cable")
    job.ready()
    hosts[1].cable("down")
    first, *remote = job.errors_of(0, 1, 2, within=TIME + LIMIT)
    assert first.startswith(f"processes 1, 2 of 3 (on {hosts[1].name}) have been silent for ")
    for error in remote:
        assert error.startswith(
            f"process 0 of 3 (on {hosts[0].name}), which serves the job's store at 10.77.0.1:29517, "
        )


def run_faulty(prepared, out, monkeypatch, *, limit, **fault):
    changes = {"max_steps": 6, "checkpoints": CheckpointConfig(save_every=2), "runtime": {"heartbeat": limit}}
    job = make_job(prepared, out, processes=2, ep=2, **changes)
    monkeypatch.chdir(ROOT)
    for name, value in fault.items():
        monkeypatch.setenv(name, str(value))
    launch("tests.parallel.faulty_worker", asdict(job), directory=out / "log", processes=2, threads=1, title="faulty")


def a_stopped_process_ends_the_job_which_resumes(straight, prepared, tmp_path, monkeypatch, *, limit, within):
    began = time.monotonic()
    with pytest.raises(JobFailed) as failed:
        run_faulty(prepared, tmp_path, monkeypatch, limit=limit, FAULT="stop", FAULT_STEP=4)
    last_step = (tmp_path / "log" / "metrics.jsonl").stat().st_mtime
    took = time.time() - last_step
    print(f"{failed.value}; ended {took:.1f} s after the last step, {time.monotonic() - began:.1f} s after the start")
    assert re.match(r"faulty: process 1 of 2 has been silent for \d+ s \(stopped, swapped out, or ", str(failed.value))
    assert took < within
    output = re.sub(r"\d+ s ", "30 s ", str(failed.value)).removeprefix("faulty: ")
    assert output in (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    # A process that is busy and does not respond for half the limit is not lost.
    busy = {"FAULT": "busy", "FAULT_STEP": 5, "FAULT_MICROSECONDS": limit * 500_000}
    run_faulty(prepared, tmp_path, monkeypatch, limit=limit, **busy)
    resumed = type(straight)(tmp_path)
    assert [r["step"] for r in resumed.records("train")] == [1, 2, 3, 4, 5, 6]
    for actual, expected in zip(resumed.records("train"), straight.records("train"), strict=True):
        assert actual["cross_entropy"] == expected["cross_entropy"], actual["step"]
    assert_same_bits(resumed, straight)


@pytest.mark.quiet
def test_a_stopped_process_ends_the_job_which_resumes(straight, prepared, tmp_path, monkeypatch):
    a_stopped_process_ends_the_job_which_resumes(straight, prepared, tmp_path, monkeypatch, limit=4, within=15)


@pytest.mark.quiet
def test_with_the_default_heartbeat_a_job_ends_within_a_minute(straight, prepared, tmp_path, monkeypatch):
    limit = load_config([]).runtime.heartbeat
    a_stopped_process_ends_the_job_which_resumes(straight, prepared, tmp_path, monkeypatch, limit=limit, within=60)
