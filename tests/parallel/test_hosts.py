"""Training over two hosts, with DeepSpeed's launcher on each host, shared experts, and gloo over a cable."""

import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import asdict

import pytest

from pipeline.config import load_config
from pipeline.jobs.hosts import prepare
from pipeline.train.config import CheckpointConfig
from tests.conftest import ROOT
from tests.parallel.conftest import Outcome, assert_same_bits, make_job
from tests.parallel.hosts import two_hosts


@pytest.fixture
def hosts():
    with two_hosts() as pair:
        yield pair


@pytest.fixture
def start(hosts):
    """Start a job by the command of runtime.launcher=hostfile, but on each host separately, with --no_ssh."""
    launchers = []

    def begin(job):
        command, states = prepare("pipeline.train", asdict(job), directory=job.log, runtime=job.runtime)
        processes = []
        for rank, host in enumerate(hosts):
            by_hand = [*command[:3], "--no_ssh", f"--node_rank={rank}", *command[3:]]
            with (job.log / f"{host.name}.out").open("wb") as output:
                process = subprocess.Popen(
                    host.command(by_hand),
                    env={**os.environ, "PYTHONPATH": str(ROOT)},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            processes.append(process)
            launchers.append(process)
        return processes, states

    yield begin
    for process in launchers:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the launcher and its processes
        process.wait()


def job_on(hosts, prepared, out, *, heartbeat, **changes):
    hostfile = out / "hostfile"
    hostfile.write_text("".join(f"{host.address} slots=1\n" for host in hosts))
    runtime = {"launcher": "hostfile", "hostfile": str(hostfile), "master_address": hosts[0].address}
    return make_job(prepared, out, processes=2, ep=2, runtime={**runtime, "heartbeat": heartbeat}, **changes)


def wait_for_step(job, step, started):
    deadline = time.monotonic() + 240
    metrics = job.log / "metrics.jsonl"
    while not metrics.exists() or metrics.read_text().count('"train"') < step:
        assert [process.poll() for process in started] == [None, None], output(job)
        assert time.monotonic() < deadline, output(job)
        time.sleep(0.05)


def output(job):
    return "".join(path.read_text() for path in sorted(job.log.glob("*.out")))[-5000:]


def hosts_are_cut_apart_and_resume(prepared, run_job, hosts, start, out, *, heartbeat, within):
    """Cut the cable during training, and expect that both sides end and then continue together.

    The result has the bits of two processes on one host.
    """
    changes = {"heartbeat": heartbeat, "checkpoints": CheckpointConfig(save_every=2)}
    job = job_on(hosts, prepared, out, max_steps=10**6, **changes)
    started, states = start(job)
    wait_for_step(job, 5, started)
    hosts[1].cable("down")
    began = time.monotonic()
    assert [process.wait(timeout=within) for process in started] == [1, 1], output(job)
    took = time.monotonic() - began
    print(f"both hosts ended {took:.1f} s after the cut")
    assert took < within
    assert states.codes() == [1, 1]
    errors = [(job.log / f"rank-{rank}.error").read_text() for rank in range(2)]
    assert errors[0].startswith(f"process 1 of 2 (on {hosts[1].name}) has been silent for "), errors[0]
    assert errors[1].startswith(f"process 0 of 2 (on {hosts[0].name}), which serves the job's store at "), errors[1]
    hosts[1].cable("up")
    steps = int(Outcome(out).checkpoint().name.removeprefix("step-")) + 2
    job = job_on(hosts, prepared, out, max_steps=steps, **changes)
    started, states = start(job)
    assert [process.wait(timeout=240) for process in started] == [0, 0], output(job)
    assert states.codes() == [0, 0]
    assert states.hosts() == {0: hosts[0].name, 1: hosts[1].name}
    assert_same_bits(Outcome(out), run_job(processes=2, ep=2, max_steps=steps))


@pytest.mark.quiet
def test_hosts_are_cut_apart_and_resume(prepared, run_job, hosts, start, tmp_path):
    hosts_are_cut_apart_and_resume(prepared, run_job, hosts, start, tmp_path, heartbeat=4, within=60)


@pytest.mark.quiet
def test_with_the_default_heartbeat_hosts_that_are_cut_apart_end_within_a_minute(
    prepared, run_job, hosts, start, tmp_path
):
    heartbeat = load_config([]).runtime.heartbeat
    hosts_are_cut_apart_and_resume(prepared, run_job, hosts, start, tmp_path, heartbeat=heartbeat, within=60)
