"""Training over two hosts: DeepSpeed's launcher on each, experts cut over both, gloo over the cable between them."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict

import pytest
import torch

from pipeline.parallel.cluster import prepare
from pipeline.parallel.launch import STOPPED
from tests.conftest import ROOT
from tests.parallel.conftest import Outcome, make_job
from tests.parallel.hosts import ssh_between, two_hosts

STARTER = ROOT / "tests" / "parallel" / "run_on_hosts.py"


@pytest.fixture
def hosts():
    with two_hosts() as both:
        yield both


def start(job, hosts):
    """By the command of runtime.launcher=hostfile, but for --no_ssh: on each host by hand."""
    command, states = prepare("pipeline.train", asdict(job), directory=job.log, runtime=job.runtime)
    started = []
    for rank, host in enumerate(hosts):
        by_hand = [*command[:3], "--no_ssh", f"--node_rank={rank}", *command[3:]]
        with (job.log / f"{host.name}.out").open("wb") as output:
            started.append(
                subprocess.Popen(
                    host.command(by_hand),
                    env={**os.environ, "PYTHONPATH": str(ROOT)},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
            )
    return started, states


def job_on(hosts, prepared, out, **changes):
    hostfile = out / "hostfile"
    hostfile.write_text("".join(f"{host.address} slots=1\n" for host in hosts))
    runtime = {"launcher": "hostfile", "hostfile": str(hostfile), "master_address": hosts[0].address}
    return make_job(prepared, out, processes=2, ep=2, runtime=runtime, **changes)


def test_two_hosts_train_as_one_does(prepared, run_job, hosts, tmp_path):
    job = job_on(hosts, prepared, tmp_path, max_steps=3)
    started, states = start(job, hosts)
    outputs = "".join((job.log / f"{host.name}.out").read_text() for host in hosts)
    assert [process.wait(timeout=120) for process in started] == [0, 0], outputs
    assert states.codes() == [0, 0]
    assert states.hosts() == {0: hosts[0].name, 1: hosts[1].name}
    mine, theirs = Outcome(tmp_path), run_job(processes=2, ep=2, max_steps=3)
    for name, tensor in theirs.tensors().items():
        assert torch.equal(mine.tensors()[name], tensor), name


@pytest.mark.long
def test_over_ssh_a_stop_saves_and_the_same_command_goes_on(prepared, run_job, hosts, tmp_path):
    """`runtime.launcher=hostfile` as a user has it: pdsh, ssh, and SIGTERM to the process that started it all."""
    (tmp_path / "ssh").mkdir()
    with ssh_between(hosts, tmp_path / "ssh") as binaries:
        environment = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}

        def run(max_steps):
            job = job_on(hosts, prepared, tmp_path, max_steps=max_steps)
            (tmp_path / "asked.json").write_text(json.dumps(asdict(job)))
            command = [sys.executable, str(STARTER), "pipeline.train", str(tmp_path / "asked.json")]
            return subprocess.Popen(
                hosts[0].command(command), env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )

        first = run(10**6)
        wait_for_step(tmp_path, 2, first)
        first.send_signal(signal.SIGTERM)
        said = first.communicate(timeout=120)[1]
        assert first.returncode == 128 + signal.SIGTERM, said
        codes = {json.loads(path.read_text())["code"] for path in (tmp_path / "log").glob("rank-*.state")}
        assert codes == {STOPPED}, said
        reached = int(Outcome(tmp_path).checkpoint().name.removeprefix("step-"))
        second = run(reached + 2)
        said = second.communicate(timeout=120)[1]
        assert second.returncode == 0, said
    mine, theirs = Outcome(tmp_path), run_job(processes=2, ep=2, max_steps=reached + 2)
    for name, tensor in theirs.tensors().items():
        assert torch.equal(mine.tensors()[name], tensor), name


def wait_for_step(out, step, process):
    deadline = time.monotonic() + 120
    metrics = out / "log" / "metrics.jsonl"
    while not metrics.exists() or metrics.read_text().count('"train"') < step:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline, "no progress"
        time.sleep(0.1)
