"""The store in which the processes of a job meet listens at one address, and a stranger cannot end the job."""

import json
import os
import socket
import stat
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta

import pytest
from torch.distributed import TCPStore

from pipeline.config import load_config
from pipeline.jobs.hosts import KEY, prepare
from pipeline.jobs.rendezvous import World
from tests.conftest import ROOT

PROCESS = """
import sys
from pipeline.jobs.heartbeat import Heartbeat
from pipeline.jobs.rendezvous import World

world = World.meet(init_method=sys.argv[1], rank=0, size=1, timeout=60)
heartbeat = Heartbeat(world, limit=6, report=lambda why: print(why, flush=True))
print("beats", flush=True)
sys.stdin.readline()
heartbeat.leave(finished=True)
print("ends", flush=True)
"""
SHOW = """
import json, os, sys
from pathlib import Path
Path(sys.argv[1]).with_name("seen").write_text(os.environ["BABELSHARD_STORE_KEY"])
Path(sys.argv[1]).with_name("command").write_bytes(Path("/proc/self/cmdline").read_bytes())
"""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def test_the_store_listens_only_at_the_address_of_the_job() -> None:
    """127.0.0.2 stands for any other address of this host."""
    port = free_port()
    world = World.meet(init_method=f"tcp://127.0.0.1:{port}", rank=0, size=1, timeout=30)
    assert world.address == f"127.0.0.1:{port}"
    socket.create_connection(("127.0.0.1", port), timeout=5).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port), timeout=5)


def test_an_address_of_another_host_or_a_taken_port_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"process 0 cannot listen at 192.0.2.1:29519 on .*set runtime.master_address"):
        World.meet(init_method="tcp://192.0.2.1:29519", rank=0, size=1, timeout=5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ValueError, match=rf"cannot listen at 127.0.0.1:{port} .* runtime.master_port to a free"):
            World.meet(init_method=f"tcp://127.0.0.1:{port}", rank=0, size=1, timeout=5)


def test_a_stranger_without_the_key_ends_no_process() -> None:
    """A stranger reaches the port, and writes the verdicts by which this version ends processes."""
    address = f"127.0.0.1:{(port := free_port())}"
    environment = {**os.environ, "BABELSHARD_STORE_KEY": "5" * 32}
    with subprocess.Popen(
        [sys.executable, "-c", PROCESS, f"tcp://{address}"],
        env=environment,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "beats\n"
        stranger = TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=10), wait_for_workers=False)
        for key in ("verdict", "attempt-0/verdict", "attempt-0//verdict", "/attempt-0/verdict"):
            stranger.set(key, "process 0 of 1 failed: a lie")
        for key in ("beat/0", "attempt-0/beat/0"):
            stranger.set(key, "x")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=3)  # three beats
        output, _ = process.communicate("go on\n", timeout=30)
    assert (process.returncode, output) == (0, "ends\n")


def test_the_key_reaches_the_processes_on_no_command_line(tmp_path):
    """The key is in a file that only this user may read, and then in the environment of the process."""
    (tmp_path / "hostfile").write_text("node-a slots=1\n")
    settings = load_config(["runtime=hostfile", "batch.groups_per_step=16", "runtime.device=cpu"]).runtime
    settings = replace(settings, hostfile=str(tmp_path / "hostfile"), processes=1, ep=1)
    (tmp_path / "show.py").write_text(SHOW)
    keys = []
    for _ in range(2):
        job = {"runtime": {"launcher": "hostfile", "threads": 1}}
        command, _ = prepare("show", job, directory=tmp_path / "log", runtime=settings)
        file = tmp_path / "log" / KEY
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        keys.append(file.read_text())
        assert len(keys[-1]) == 32
        place = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_SIZE": "1"}
        place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "PYTHONPATH": f"{tmp_path}:{ROOT}"}
        subprocess.run([sys.executable, "-m", *command[-4:]], env={**os.environ, **place}, cwd=ROOT, check=True)
        state = json.loads((tmp_path / "log" / "rank-0.state").read_text())
        assert state["code"] == 0
        assert (tmp_path / "log" / "seen").read_text() == keys[-1]
        commands = " ".join(command) + (tmp_path / "log" / "command").read_text()
        assert keys[-1] not in commands
    assert keys[0] != keys[1]  # every attempt has its own
