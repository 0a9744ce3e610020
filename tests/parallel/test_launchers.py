"""With both launchers of several hosts, SIGTERM saves the run and the same command continues it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict

import psutil
import pytest

from pipeline.jobs.launch import STOPPED
from tests.conftest import ROOT
from tests.parallel.conftest import Outcome, assert_same_bits, make_job
from tests.parallel.hosts import ssh_between, two_hosts
from tests.parallel.slurm import two_nodes

STARTER = ROOT / "tests" / "parallel" / "run_on_hosts.py"


def test_deepspeeds_launcher_over_ssh(prepared, run_job, tmp_path):
    (tmp_path / "ssh").mkdir()
    with two_hosts() as hosts, ssh_between(hosts, tmp_path / "ssh") as binaries:
        (tmp_path / "hostfile").write_text("".join(f"{host.address} slots=1\n" for host in hosts))
        runtime = {
            "launcher": "hostfile",
            "hostfile": str(tmp_path / "hostfile"),
            "master_address": hosts[0].address,
        }
        environment = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}"}
        stops_and_goes_on(prepared, run_job, tmp_path, runtime, environment, hosts[0].command)


def test_srun(prepared, run_job, tmp_path):
    interfaces = psutil.net_if_addrs()
    interfaces.pop("lo", None)
    address = next(
        (a.address for addresses in interfaces.values() for a in addresses if a.family == socket.AF_INET), None
    )
    if address is None:
        pytest.skip("this machine has no address but loopback")
    with two_nodes(tmp_path / "slurm") as environment:
        runtime = {"launcher": "slurm", "master_address": address}
        for command in (
            ["salloc", "--quiet", "--nodes=2", "--ntasks=2", "--no-shell"],
            ["squeue", "-h", "--format=%i"],
        ):
            result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        inside = {
            **environment,
            "SLURM_JOB_ID": result.stdout.strip(),
            "SLURM_JOB_NUM_NODES": "2",
            "SLURM_JOB_NODELIST": "n[1-2]",
        }
        stops_and_goes_on(prepared, run_job, tmp_path, runtime, inside, list)


def stops_and_goes_on(prepared, run_job, out, runtime, environment, on_first_host):
    """Stop and continue a run. It must equal a run of two processes on one host, bit for bit."""

    @contextmanager
    def run(max_steps):
        job = make_job(prepared, out, processes=2, ep=2, runtime=runtime, max_steps=max_steps)
        (out / "request.json").write_text(json.dumps(asdict(job)))
        process = subprocess.Popen(
            on_first_host([sys.executable, str(STARTER), "pipeline.train", str(out / "request.json")]),
            env={**environment, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.terminate()  # which ends the processes on all hosts
            process.wait()

    with run(10**6) as first:
        wait_for_step(out, 2, first)
        first.send_signal(signal.SIGTERM)
        errors = first.communicate(timeout=240)[1]
        assert first.returncode == STOPPED, errors
    codes = [json.loads(path.read_text())["code"] for path in (out / "log").glob("rank-*.state")]
    assert codes == [STOPPED, STOPPED], errors
    reached = int(Outcome(out).checkpoint().name.removeprefix("step-"))
    with run(reached + 2) as second:
        errors = second.communicate(timeout=240)[1]
        assert second.returncode == 0, errors
    assert_same_bits(Outcome(out), run_job(processes=2, ep=2, max_steps=reached + 2))


def wait_for_step(out, step, process):
    deadline = time.monotonic() + 240
    metrics = out / "log" / "metrics.jsonl"
    while not metrics.exists() or metrics.read_text().count('"train"') < step:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline, "no progress"
        time.sleep(0.1)
