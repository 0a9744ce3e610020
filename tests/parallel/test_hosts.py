"""Training over two hosts: DeepSpeed's launcher on each, experts cut over both, gloo over the cable between them."""

import os
import subprocess
from dataclasses import asdict

import pytest
import torch

from pipeline.parallel.cluster import prepare
from tests.conftest import ROOT
from tests.parallel.conftest import Outcome, make_job
from tests.parallel.hosts import two_hosts


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
