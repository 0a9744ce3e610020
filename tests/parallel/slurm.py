"""Run a Slurm cluster of two nodes on one machine, with its own configuration and munge."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PATH = f"{os.environ['PATH']}:/usr/sbin"
CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
NodeName=n[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{ports[1]}-{ports[2]}] RealMemory=2000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@contextmanager
def two_nodes(directory: Path) -> Iterator[dict[str, str]]:
    """Provide the environment for Slurm's commands. Skip the test if Slurm is not installed."""
    if os.geteuid() != 0:
        pytest.skip("slurmd needs root")
    for name in ("munged", "slurmctld", "slurmd", "srun"):
        if shutil.which(name, path=PATH) is None:
            pytest.skip(f"{name} is not installed")
    for name in ("state", "n1", "n2"):
        (directory / name).mkdir(parents=True)
    host = socket.gethostname().split(".")[0]
    (directory / "slurm.conf").write_text(CONF.format(host=host, directory=directory, ports=free_ports()))
    (directory / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    (directory / "munge.key").write_bytes(os.urandom(128))
    (directory / "munge.key").chmod(0o400)
    environment = {**os.environ, "PATH": PATH, "SLURM_CONF": str(directory / "slurm.conf")}
    munge = ["munged", "--foreground", "--force"]
    munge += [f"--{option}={directory}/munge.{option.split('-')[0]}" for option in ("socket", "key-file", "pid-file")]
    munge += [f"--log-file={directory}/munge.log", f"--seed-file={directory}/munge.seed"]
    with (directory / "output").open("wb") as output:
        servers = [
            subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
            for command in (munge, ["slurmctld", "-D"], ["slurmd", "-D", "-N", "n1"], ["slurmd", "-D", "-N", "n2"])
        ]
    try:
        deadline = time.monotonic() + 60
        while nodes(environment).count("idle") < 2:
            assert time.monotonic() < deadline, (directory / "output").read_text()[-3000:]
            time.sleep(0.5)
        yield environment
    finally:
        for server in reversed(servers):
            server.terminate()
            server.wait()


def nodes(environment: dict[str, str]) -> list[str]:
    """Return the states of the nodes."""
    command = ["sinfo", "--noheader", "--Node", "--format=%T"]
    return subprocess.run(command, env=environment, capture_output=True, text=True).stdout.split()


def free_ports() -> list[int]:
    """Return one free port, and two consecutive ones."""
    while True:
        sockets = [socket.socket() for _ in range(2)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        first, second = (listener.getsockname()[1] for listener in sockets)
        try:
            with socket.socket() as third:
                third.bind(("127.0.0.1", second + 1))
            return [first, second, second + 1]
        except OSError:
            continue
        finally:
            for listener in sockets:
                listener.close()
