"""Starting the processes of one job on several hosts: by DeepSpeed's launcher over ssh, or by srun inside a Slurm job.

The launcher starts `pipeline.parallel.remote` once for each process. That leaves `rank-N.state` beside the job file, on
the file system that all hosts share: where it runs and, at the end, the exit code of its process. So what this process
knows of the others does not depend on what a launcher makes of their exit codes.
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
from pipeline.parallel.config import RuntimeConfig
from pipeline.parallel.launch import GRACE, JobFailed, end, launch, read_reports, start, wait, write_job

logger = logging.getLogger(__name__)

REMOTE = "pipeline.parallel.remote"
ATTEMPT = "attempt"  # beside the job file: the word of this attempt, which every process must find there
KEY = "key"  # beside the job file, for this user alone: what names in the store of this attempt begin with
HOST = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9][A-Za-z0-9_.-]*")  # nothing to a shell, no option of ssh
LATE = 10.0  # seconds after the launcher's end in which the last states appear on the shared file system


def launch_job(module: str, job: dict[str, Any], *, directory: Path, runtime: RuntimeConfig, title: str) -> None:
    """Run a job to its end, wherever `runtime` says. directory: of its logs. Raises Stopped or JobFailed."""
    if runtime.launcher != "local":
        launch_on_hosts(module, job, directory=directory, runtime=runtime, title=title)
        return
    launch(module, job, directory=directory, processes=runtime.processes, threads=runtime.threads, title=title)


def launch_on_hosts(module: str, job: dict[str, Any], *, directory: Path, runtime: RuntimeConfig, title: str) -> None:
    """`launch` on several hosts. directory: of its logs, on a file system that all of them share."""
    command, states = prepare(module, job, directory=directory, runtime=runtime)
    environment = {**os.environ, **meeting_point(runtime)}
    ask = signal.SIGUSR1 if runtime.launcher == "slurm" else signal.SIGTERM  # SIGTERM makes srun kill its processes
    launcher = start(command, environment, directory / "launcher.out", title, ask)
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
            launcher.wait(timeout=GRACE)  # it looks at its processes only now and then
    finally:
        end([launcher])
        (directory / KEY).unlink(missing_ok=True)
        if runtime.launcher == "hostfile":  # which does not wait for those it stops, as srun does
            states.wait(GRACE)


def prepare(module: str, job: dict[str, Any], *, directory: Path, runtime: RuntimeConfig) -> tuple[list[str], "States"]:
    """Write what the hosts read; the launcher's whole command, and what will be known of its processes.

    Raises ValueError as `launcher_command`."""
    launcher = launcher_command(runtime)
    job_file = write_job(job, directory)
    attempt = secrets.token_hex(8)
    (directory / ATTEMPT).write_text(attempt, encoding="utf-8")
    write_key(directory / KEY)
    command = [*launcher, REMOTE, module, str(job_file.resolve()), attempt]
    return command, States(directory, attempt, runtime.processes)


def write_key(path: Path) -> None:
    """A new key in a file that only this user may read: on a command line, all users of the hosts would see it."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(secrets.token_hex(16), encoding="utf-8")


@dataclass(frozen=True)
class States:
    """What the processes of one attempt have left in `rank-N.state`."""

    directory: Path
    attempt: str
    processes: int

    def read(self) -> dict[int, dict[str, Any]]:
        """By rank, of those that have started. Lists the directory: of a single file NFS may remember that it was not
        there."""
        found = [json.loads(path.read_text(encoding="utf-8")) for path in self.directory.glob("rank-*.state")]
        return {state["rank"]: state for state in found if state["attempt"] == self.attempt}

    def codes(self) -> list[int | None]:
        found = self.read()
        return [found[rank]["code"] if rank in found else None for rank in range(self.processes)]

    def hosts(self) -> dict[int, str]:
        return {rank: state["host"] for rank, state in self.read().items()}

    def missing(self) -> str:
        found = self.read()
        silent = [rank for rank in range(self.processes) if rank not in found]
        lost = [f"{rank} (on {state['host']})" for rank, state in sorted(found.items()) if state["code"] is None]
        which = ", ".join(lost or map(str, silent))
        name = f"process{'es' if ',' in which else ''} {which} of {self.processes}"
        if lost:
            return f"{name} ended without a word (killed?)"
        return f"{name} did not start; what the launcher said is above and in {self.directory / 'launcher.out'}"

    def wait(self, seconds: float) -> None:
        """Until all that have started have ended."""
        deadline = time.monotonic() + seconds
        while running := [s for s in self.read().values() if s["code"] is None]:
            if time.monotonic() > deadline:
                names = ", ".join(f"{state['rank']} (on {state['host']})" for state in running)
                logger.warning("warning: process %s has not reported its end within %.0f s", names, seconds)
                return
            time.sleep(0.2)


def launcher_command(runtime: RuntimeConfig) -> list[str]:
    """All that comes before the module that each process runs. Raises ValueError as `read_hostfile`."""
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
    read_hostfile(Path(runtime.hostfile))  # which DeepSpeed hands to ssh as it is
    return [
        *(sys.executable, "-m", "deepspeed.launcher.runner"),
        f"--hostfile={Path(runtime.hostfile).resolve()}",
        *([f"--master_addr={runtime.master_address}"] if runtime.master_address else []),
        f"--master_port={runtime.master_port}",
        "--force_multi",  # the way over ssh, also where the file names one host
        "--no_local_rank",
        "--quiet",
        "--module",
    ]


def meeting_point(runtime: RuntimeConfig) -> dict[str, str]:
    """What srun hands on to its processes; DeepSpeed's launcher sets it itself."""
    if runtime.launcher != "slurm":
        return {}
    address = runtime.master_address
    if not address:
        command = ["scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]]
        address = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0]
    return {"MASTER_ADDR": address, "MASTER_PORT": str(runtime.master_port)}


def check_launcher(runtime: RuntimeConfig) -> None:
    """Refuse what the launcher, and the stages that run on this host, lack here; before any work."""
    tasks.check_launcher(runtime.data)
    if runtime.device == "cuda":
        from pipeline.parallel.device import check_cuda

        check_cuda(runtime.processes if runtime.launcher == "local" else 1)
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


def read_hostfile(path: Path) -> dict[str, int]:
    """Number of processes of each host, from lines `name slots=N`. Raises ValueError for any other line."""
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
