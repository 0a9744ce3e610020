"""Start the processes of one job on several hosts: by DeepSpeed's launcher over ssh, or by srun in a Slurm job.

The launcher starts `pipeline.jobs.remote` once for each process. That module writes `rank-N.state` beside the job file,
on the file system that all hosts share. The file holds the host and, at the end, the exit code of the process, because
launchers do not report exit codes reliably.
"""

import json
import logging
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pipeline import tasks
from pipeline.jobs.launch import GRACE, JobFailed, end, launch, read_reports, start, wait, write_job
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.jobs.visible_devices import check_devices, has_unused_driver, own_device

logger = logging.getLogger(__name__)

REMOTE = "pipeline.jobs.remote"
# Files beside the job file.
ATTEMPT = "attempt"  # a random word that names this attempt; every process must find it
KEY = "key"  # prefix of the names in the store of this attempt; readable for this user alone
# Such names are neither options of ssh nor special to a shell.
HOST = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9][A-Za-z0-9_.-]*")
LATE = 10.0  # seconds that the last states may take to appear on the shared file system


def launch_job(
    module: str, job: dict[str, Any], *, directory: Path, runtime: RuntimeConfig, title: str, slot: int = 0
) -> None:
    """Run a job to its end, on this machine or on the hosts that `runtime` names. Raises Stopped or JobFailed.

    slot: number of the job among those that run at the same time, for `own_device`.
    The other arguments are those of `launch`.
    """
    if runtime.launcher != "local":
        launch_on_hosts(module, job, directory=directory, runtime=runtime, title=title)
        return
    launch(
        module,
        job,
        directory=directory,
        processes=runtime.processes,
        threads=runtime.threads,
        title=title,
        variables=own_device(runtime, slot),
    )


def launch_on_hosts(module: str, job: dict[str, Any], *, directory: Path, runtime: RuntimeConfig, title: str) -> None:
    """Run a job to its end on several hosts. directory: as of `launch`, on a file system that all hosts share."""
    command, states = prepare(module, job, directory=directory, runtime=runtime)
    environment = {**os.environ, **meeting_point(runtime)}
    stop_signal = signal.SIGUSR1 if runtime.launcher == "slurm" else signal.SIGTERM  # srun kills its tasks at SIGTERM
    launcher = start(command, environment, directory / "launcher.out", title, stop_signal)
    ended_at = 0.0

    def poll() -> list[int | None]:
        nonlocal ended_at
        codes = states.codes()
        if launcher.poll() is not None and None in codes:
            ended_at = ended_at or time.monotonic()
            if time.monotonic() - ended_at > LATE:
                raise JobFailed(f"{title}: {states.missing()}; the launcher ended with exit code {launcher.returncode}")
        return codes

    try:
        wait(poll, partial(read_reports, directory), title, states.hosts, interval=1.0)
        with suppress(subprocess.TimeoutExpired):
            launcher.wait(timeout=GRACE)  # the launcher looks at its processes only from time to time
    finally:
        end([launcher])
        (directory / KEY).unlink(missing_ok=True)
        if runtime.launcher == "hostfile":  # unlike srun, it does not wait for the processes that it stops
            states.wait(GRACE)


def prepare(module: str, job: dict[str, Any], *, directory: Path, runtime: RuntimeConfig) -> tuple[list[str], "States"]:
    """Write the files that the hosts read. Return the launcher's command and the states of its processes.

    Raises ValueError on a wrong hostfile.
    """
    launcher = launcher_command(runtime)
    job_file = write_job(job, directory)
    attempt = secrets.token_hex(8)
    (directory / ATTEMPT).write_text(attempt, encoding="utf-8")
    write_key(directory / KEY)
    command = [*launcher, REMOTE, module, str(job_file.resolve()), attempt]
    return command, States(directory, attempt, runtime.processes)


def write_key(path: Path) -> None:
    """Write a new key to a file that only this user may read. All users would see it on a command line."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(secrets.token_hex(16), encoding="utf-8")


@dataclass(frozen=True)
class States:
    """The states that the processes of one attempt have written to `rank-N.state`."""

    directory: Path
    attempt: str
    processes: int

    def read(self) -> dict[int, dict[str, Any]]:
        """Return the states of the processes that have started, by rank.

        This lists the directory, because NFS may remember that a single file did not exist.
        """
        states = [json.loads(path.read_text(encoding="utf-8")) for path in self.directory.glob("rank-*.state")]
        return {state["rank"]: state for state in states if state["attempt"] == self.attempt}

    def codes(self) -> list[int | None]:
        """Return the exit code of each process; None if it has not ended."""
        states = self.read()
        return [states[rank]["code"] if rank in states else None for rank in range(self.processes)]

    def hosts(self) -> dict[int, str]:
        """Return the host of each process that has started, by rank."""
        return {rank: state["host"] for rank, state in self.read().items()}

    def missing(self) -> str:
        """Return a message that names the processes that have not ended, or else those that never started."""
        states = self.read()
        silent = [rank for rank in range(self.processes) if rank not in states]
        lost = [f"{rank} (on {state['host']})" for rank, state in sorted(states.items()) if state["code"] is None]
        ranks = ", ".join(lost or map(str, silent))
        name = f"process{'es' if ',' in ranks else ''} {ranks} of {self.processes}"
        if lost:
            return f"{name} ended without a word (killed?)"
        return f"{name} did not start; what the launcher said is above and in {self.directory / 'launcher.out'}"

    def wait(self, seconds: float) -> None:
        """Wait until all processes that have started have ended, for `seconds` at most."""
        deadline = time.monotonic() + seconds
        while running := [s for s in self.read().values() if s["code"] is None]:
            if time.monotonic() > deadline:
                names = ", ".join(f"{state['rank']} (on {state['host']})" for state in running)
                logger.warning("warning: process %s has not reported its end within %.0f s", names, seconds)
                return
            time.sleep(0.2)


def launcher_command(runtime: RuntimeConfig) -> list[str]:
    """Return the launcher's command, up to the module that each process runs. Raises ValueError as `read_hostfile`."""
    if runtime.launcher == "slurm":
        nodes = int(os.environ["SLURM_JOB_NUM_NODES"])
        return [
            "srun",
            f"--nodes={nodes}",
            f"--ntasks={runtime.processes}",
            f"--ntasks-per-node={runtime.processes // nodes}",
            f"--cpus-per-task={runtime.threads}",
            "--kill-on-bad-exit=1",
            *(sys.executable, "-m"),
        ]
    read_hostfile(Path(runtime.hostfile))  # checked, because DeepSpeed gives the names to ssh unchanged
    return [
        *(sys.executable, "-m", "deepspeed.launcher.runner"),
        f"--hostfile={Path(runtime.hostfile).resolve()}",
        *([f"--master_addr={runtime.master_address}"] if runtime.master_address else []),
        f"--master_port={runtime.master_port}",
        "--force_multi",  # use ssh even if the file names one host
        "--no_local_rank",
        "--quiet",
        "--module",
    ]


def meeting_point(runtime: RuntimeConfig) -> dict[str, str]:
    """Return the variables that srun passes to its processes. DeepSpeed's launcher sets them itself."""
    if runtime.launcher != "slurm":
        return {}
    address = runtime.master_address
    if not address:
        command = ["scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]]
        address = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0]
    return {"MASTER_ADDR": address, "MASTER_PORT": str(runtime.master_port)}


def check_launcher(runtime: RuntimeConfig) -> None:
    """Raise ValueError if this host lacks what the launcher or the data stages need."""
    tasks.check_launcher(runtime.data)
    if runtime.launcher != "local" and runtime.device == "auto":
        raise ValueError(
            f"runtime.device=auto with runtime.launcher={runtime.launcher}: each host would choose for itself; set "
            "runtime.device to cuda or cpu"
        )
    check_devices(runtime.device, runtime.processes if runtime.launcher == "local" else 1)
    if runtime.device == "auto" and has_unused_driver():
        logger.warning(
            "warning: this machine has NVIDIA's driver, but torch finds no device, so the CPU computes; for a torch "
            "with CUDA remove .venv and run make setup without PIP_ARGS, or set runtime.device=cpu"
        )
    if runtime.launcher == "hostfile":
        slots = sum(read_hostfile(Path(runtime.hostfile)).values())
        if slots != runtime.processes:
            raise ValueError(
                f"runtime.processes={runtime.processes}, but {runtime.hostfile} has {slots} slots in all; set "
                f"runtime.processes={slots}, or change the slots"
            )
        _check_programs(runtime.launcher, "pdsh", "ssh")
    elif runtime.launcher == "slurm":
        _check_programs(runtime.launcher, "srun", "scontrol")
        if "SLURM_JOB_ID" not in os.environ:
            raise ValueError("runtime.launcher=slurm works inside a Slurm job: start this command by sbatch or salloc")
        nodes = int(os.environ["SLURM_JOB_NUM_NODES"])
        if runtime.processes % nodes:
            raise ValueError(
                f"runtime.processes={runtime.processes} does not divide evenly over the {nodes} nodes of this Slurm "
                f"job; choose a multiple of {nodes}"
            )


def processes_per_host(runtime: RuntimeConfig) -> int:
    """Return the number of processes on one host; of hosts with different numbers, the smallest."""
    if runtime.launcher == "slurm":
        return runtime.processes // int(os.environ["SLURM_JOB_NUM_NODES"])
    if runtime.launcher == "hostfile":
        return min(read_hostfile(Path(runtime.hostfile)).values())
    return runtime.processes


def read_hostfile(path: Path) -> dict[str, int]:
    """Return the number of processes of each host, from lines `name slots=N`. Raises ValueError on other lines."""
    if not path.is_file():
        raise ValueError(f"runtime.hostfile={path} does not exist; write a line `name slots=N` into it for each host")
    hosts: dict[str, int] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.strip().startswith("#"):
            continue
        match = re.match(r"(\S+)\s+slots=(\d+)\s*$", line.strip())
        if match is None or match[1] in hosts:
            raise ValueError(f"{path}:{number}: {line.strip()!r} is not `name slots=N`, or repeats a name")
        if HOST.fullmatch(match[1]) is None:
            raise ValueError(
                f"{path}:{number}: {match[1]!r} is not the name of a host: write letters, digits, dots, hyphens and "
                "underscores, and user@ before them if need be; options of ssh belong in ~/.ssh/config"
            )
        hosts[match[1]] = int(match[2])
    return hosts


def _check_programs(launcher: str, *names: str) -> None:
    for name in names:
        if shutil.which(name) is None:
            raise ValueError(f"runtime.launcher={launcher} needs {name}, which is not on this host's PATH; install it")
