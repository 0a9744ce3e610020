"""Calls as jobs of a cluster, queued by submitit as arrays.

A job has ended when its result lies in the folder that all hosts share. It is lost when the cluster no longer knows it
and no result has come, whatever ended it; then it is queued again.
"""

import logging
import re
import secrets
import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.stopping import Stopped, stopping
from pipeline.tasks.call import TaskFailed, environment
from pipeline.tasks.cluster import Cluster, Slurm, ThisMachine
from pipeline.tasks.config import JobConfig
from pipeline.tasks.job import perform_in_job

logger = logging.getLogger(__name__)

MOST = 1000  # jobs of one array; Slurm's default limit is 1001
NAME = "name"  # file beside the jobs' own: the name in the queue of those that were queued last
ARRAY_VARIABLES = ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID")


def check_jobs(config: JobConfig) -> None:
    """Refuse, before any work, what this host cannot do."""
    try:
        import submitit  # noqa: F401
    except ImportError as error:
        raise ValueError(
            "runtime.data.launcher=submitit needs the package submitit: install it by "
            "`.venv/bin/python -m pip install -e .[cluster]`"
        ) from error
    for program in ("sbatch", "srun", "squeue", "scancel") if config.cluster == "slurm" else ():
        if shutil.which(program) is None:
            raise ValueError(
                f"runtime.data.launcher=submitit needs {program}, which is not on this host's PATH; run this command "
                "on a host that submits to Slurm, or set runtime.data.launcher=local"
            )


def run_in_jobs(
    calls: Sequence[bytes], *, config: JobConfig, directory: Path, title: str
) -> Generator[tuple[int, bytes], None, None]:
    """Number and outcome of each call, as they end. Closing it cancels the jobs that are left.

    directory: the jobs' scripts and logs go to `jobs` below it. Raises Stopped, and TaskFailed for a job that was lost
    too often.
    """
    check_jobs(config)
    jobs = _Jobs(config, directory / "jobs", title)
    lost: Counter[int] = Counter()
    try:
        jobs.submit(dict(enumerate(calls)))
        while jobs.open:
            if stopping.wait(jobs.cluster.interval):
                raise Stopped(title)
            yield from jobs.finished()
            for number in (again := jobs.lost()):
                lost[number] += 1
                job = jobs.open[number]
                message = (
                    f"{title}: task {number + 1} of {len(calls)}: job {job.job_id} ended without a result (its log: "
                    f"{job.paths.stderr})"
                )
                if lost[number] > config.retries:
                    raise TaskFailed(
                        f"{message}, for the {lost[number]}. time; finished tasks are kept: give the jobs more minutes "
                        "or memory_gb (runtime.data.jobs), or lower runtime.data.shard_rows, then run the same command "
                        "again"
                    )
                logger.warning("warning: %s; queued again, %d of %d", message, lost[number], config.retries)
            jobs.submit({number: calls[number] for number in again})
    except BaseException:  # by their name: one may be queued whose number did not arrive here
        jobs.cluster.cancel()
        raise
    jobs.tidy()


class _Jobs:
    """The jobs of one run of tasks. open: those without an outcome, by the number of their task."""

    def __init__(self, config: JobConfig, folder: Path, title: str) -> None:
        self.open: dict[int, Any] = {}
        self._config = config
        self._folder = folder
        self._title = title
        self._gone: dict[int, float] = {}
        self._query_at = 0.0
        folder.mkdir(parents=True, exist_ok=True)
        self._name = re.sub(r"\W+", "-", title) + "-" + secrets.token_hex(4)
        self._here = ThisMachine()
        self.cluster: Cluster = self._here
        if config.cluster == "slurm":
            self.cluster = Slurm(self._name, title)
            self._forget_earlier()
            (folder / NAME).write_text(self._name, encoding="utf-8")
        for path in folder.glob("*.pkl"):  # a result is a pickle, and so a program: none is read that was here before
            path.unlink()

    def submit(self, calls: Mapping[int, bytes]) -> None:
        """Queue jobs. Raises TaskFailed when the cluster refuses them."""
        import submitit
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        numbers = list(calls)
        for start in range(0, len(numbers), MOST):
            part = numbers[start : start + MOST]
            python = shlex.join(["env", *(f"{k}={v}" for k, v in environment().items()), sys.executable])
            prefixed = {f"{self._config.cluster}_python": python}
            executor = submitit.AutoExecutor(self._folder, cluster=self._config.cluster, **prefixed)
            executor.update_parameters(**parameters(self._config, self._name, single=len(part) == 1))
            try:
                queued = executor.map_array(perform_in_job, [calls[number] for number in part])
            except (FailedJobError, FailedSubmissionError) as error:
                reason = "; ".join(str(error).strip().splitlines())
                raise TaskFailed(
                    f"{self._title}: the cluster refuses the jobs: {reason}; change runtime.data.jobs"
                ) from error
            self.open.update(zip(part, queued, strict=True))
            self._here.processes.update(job.job_id for job in queued)
            names = sorted({job.job_id.partition("_")[0] for job in queued})
            logger.info("%s: %d jobs queued as %s", self._title, len(queued), ", ".join(names[:3]))

    def finished(self) -> Iterator[tuple[int, bytes]]:
        """Yield number and outcome of the jobs that ended since the last call.

        The folder is listed, because NFS may remember that a single file did not exist.
        """
        from submitit.core.utils import FailedJobError

        present = {path.name for path in self._folder.iterdir()}
        for number, job in list(self.open.items()):
            if job.paths.result_pickle.name in present:
                del self.open[number]
                try:
                    yield number, job.result()
                except FailedJobError as error:
                    raise TaskFailed(
                        f"{self._title}: job {job.job_id} could not run its task: {_last_line(str(error))}; its log is "
                        f"{job.paths.stderr}"
                    ) from error

    def lost(self) -> list[int]:
        """Return the tasks whose jobs the cluster has not listed for a while."""
        now = time.monotonic()
        if now < self._query_at:
            return []
        self._query_at = now + self.cluster.query
        if (alive := self.cluster.alive()) is None:
            return []
        self._gone = {n: self._gone.get(n, now) for n, job in self.open.items() if job.job_id not in alive}
        return [number for number, since in self._gone.items() if now - since > self.cluster.late]

    def tidy(self) -> None:
        """Delete all files but logs and scripts."""
        for path in (*self._folder.glob("*.pkl"), *self._folder.glob(".submission_file_*"), self._folder / NAME):
            path.unlink(missing_ok=True)

    def _forget_earlier(self) -> None:
        """End jobs of a command that was killed before it could cancel them."""
        name = self._folder / NAME
        if name.exists():
            earlier = Slurm(name.read_text(encoding="utf-8"), f"{self._title}, earlier jobs")
            earlier.cancel()
            earlier.wait()


def parameters(config: JobConfig, name: str, *, single: bool) -> dict[str, Any]:
    """Return the parameters of submitit's AutoExecutor. single: one job, which submitit queues without an array."""
    inherited = [f"unset {' '.join(ARRAY_VARIABLES)}"] if single else []  # this command may itself be part of an array
    options = {word.partition("=")[0]: word.partition("=")[2] or True for word in config.options}
    return {
        "name": name,
        "timeout_min": config.minutes,
        "mem_gb": config.memory_gb,
        "cpus_per_task": config.cpus,
        "slurm_partition": config.partition or None,
        "slurm_array_parallelism": config.at_once,
        "slurm_setup": [*inherited, *config.setup],
        "slurm_additional_parameters": options,
        "slurm_use_srun": False,
    }


def _last_line(text: str) -> str:
    """Return the error itself from the traceback in submitit's message."""
    trace = text.split("----------------------")[1]
    return trace.strip().splitlines()[-1]
