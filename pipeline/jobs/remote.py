"""One process of a job on a host that a cluster's launcher chose: `python -m pipeline.jobs.remote <module>
<job.json> <attempt>`.

This module starts the process of the job and waits for it. It passes SIGTERM on and writes the exit code to
`rank-N.state`.
"""

import ipaddress
import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from pipeline.jobs.hosts import ATTEMPT, KEY
from pipeline.jobs.launch import common_environment, interface_variables

# The variables of each launcher for the rank, world size, local rank and local world size.
VARIABLES = {
    "hostfile": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE"),
    "slurm": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
}
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


def main(module: str, job_file: Path, attempt: str) -> int:
    """Run the process to its end. Return its exit code, or 128 + N if signal N killed it."""
    mark = job_file.with_name(ATTEMPT)
    if not mark.is_file() or mark.read_text(encoding="utf-8") != attempt:
        print(
            f"error: {socket.gethostname()} does not see this job in {job_file.parent}: runtime.artifacts must be on a "
            "file system that all hosts share",
            file=sys.stderr,
        )
        return 1
    runtime = json.loads(job_file.read_text(encoding="utf-8"))["runtime"]
    place = dict(zip(NAMES, (os.environ[name] for name in VARIABLES[runtime["launcher"]]), strict=True))
    state = State(job_file.parent, int(place["RANK"]), attempt)
    state.write(None)
    try:
        store = {"BABELSHARD_STORE_KEY": job_file.with_name(KEY).read_text(encoding="utf-8")}
        environment = {**os.environ, **place, **common_environment(runtime["threads"]), **interface(place), **store}
        code = run([sys.executable, "-m", module, str(job_file)], environment, state)
    except (ValueError, OSError) as error:
        state.report(str(error))
        code = 1
    state.write(code)
    return code if code >= 0 else 128 - code


@dataclass(frozen=True)
class State:
    """The files of one process that the starter of the job reads: `rank-N.state`, `rank-N.error`, `rank-N.out`."""

    directory: Path
    rank: int
    attempt: str

    def write(self, code: int | None) -> None:
        """Write the state. code: the exit code as of subprocess; None while the process runs."""
        values = {"attempt": self.attempt, "rank": self.rank, "host": socket.gethostname(), "code": code}
        self._replace("state", json.dumps(values))

    def report(self, message: str) -> None:
        self._replace("error", message)

    def output(self) -> Path:
        return self.directory / f"rank-{self.rank}.out"

    def _replace(self, kind: str, text: str) -> None:
        path = self.directory / f"rank-{self.rank}.{kind}"
        temporary = path.with_name(f"{path.name}.tmp")
        temporary.write_text(text, encoding="utf-8")
        temporary.rename(path)


def run(command: list[str], environment: dict[str, str], state: State) -> int:
    """Run a command to its end and return its exit code.

    SIGTERM, SIGUSR1 or the end of the launcher on this host stop it. srun passes SIGUSR1 on, but not SIGTERM. SIGUSR1
    also reaches the process itself, so that inherits a mask that blocks it.
    """
    stop_asked = False

    def ask(*_: Any) -> None:
        nonlocal stop_asked
        stop_asked = True

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, ask)
    launcher = os.getppid()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    with state.output().open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=output)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
    while True:
        try:
            return process.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            if stop_asked or os.getppid() != launcher:
                process.send_signal(signal.SIGTERM)
                stop_asked, launcher = False, os.getppid()


def interface(place: dict[str, str]) -> dict[str, str]:
    """Return the variables for the network interface that leads from this host to the first host.

    Variables that the user has set are left out. Raises ValueError if the name of the first host does not resolve, if
    it resolves to a loopback address, which other hosts cannot reach, or if no interface of this host leads there.
    """
    if not interface_variables(""):
        return {}
    master, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(master, port, type=socket.SOCK_DGRAM)[0]
    except OSError as error:
        raise ValueError(
            f"{socket.gethostname()} cannot resolve {master}, where the processes are to meet ({error}); set "
            "runtime.master_address to the first host's address"
        ) from error
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)  # a datagram socket sends nothing here
        own_address = probe.getsockname()[0]
    if ipaddress.ip_address(own_address).is_loopback and place["WORLD_SIZE"] != place["LOCAL_WORLD_SIZE"]:
        raise ValueError(
            f"{master} is a loopback address on {socket.gethostname()}, where other hosts cannot reach it; set "
            "runtime.master_address to this host's address on the network that the hosts share"
        )
    interfaces = psutil.net_if_addrs().items()
    names = [name for name, addresses in interfaces if own_address in (a.address for a in addresses)]
    if not names:
        raise ValueError(
            f"no network interface of {socket.gethostname()} has the address {own_address}, which leads to {master}; "
            "set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME to the interface"
        )
    return interface_variables(names[0])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
