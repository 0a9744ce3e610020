"""Configuration of the processes of the data stages. It does not affect a result."""

from dataclasses import dataclass, field

_STAGES_IN_QUEUE = 32  # they only wait for jobs, which is cheap


@dataclass(frozen=True, kw_only=True)
class JobConfig:
    """The resources of each job that submitit queues.

    cluster: slurm, or local for submitit's own processes on this machine.
    partition: empty for the cluster's default.
    minutes, memory_gb, cpus: limits of one job.
    at_once: most jobs of an array that run at the same time.
    retries: how often a job that ended without a result is queued again.
    setup: shell lines before each job.
    options: further options of sbatch by their long names, such as account=nlp or exclusive.
    """

    cluster: str = "slurm"
    partition: str = ""
    minutes: int = 240
    memory_gb: int = 4
    cpus: int = 1
    at_once: int = 256
    retries: int = 2
    setup: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.cluster not in ("slurm", "local"):
            raise ValueError(f"runtime.data.jobs.cluster={self.cluster!r} is not one of slurm, local")
        for name, least in (("minutes", 1), ("memory_gb", 1), ("cpus", 1), ("at_once", 1), ("retries", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"runtime.data.jobs.{name}={getattr(self, name)} must be at least {least}")


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The processes that clean and encode.

    workers: processes of one thread each on this machine, shared by all stages; 1 is the command's own process.
    shard_rows: rows of a pair that one task takes.
    launcher: local, or submitit, which queues one job a task.
    jobs: resources of each job.
    """

    workers: int = 1
    shard_rows: int = 500_000
    launcher: str = "local"
    jobs: JobConfig = field(default_factory=JobConfig)

    def __post_init__(self) -> None:
        for name in ("workers", "shard_rows"):
            if getattr(self, name) < 1:
                raise ValueError(f"runtime.data.{name}={getattr(self, name)} must be at least 1")
        if self.launcher not in ("local", "submitit"):
            raise ValueError(f"runtime.data.launcher={self.launcher!r} is not one of local, submitit")

    @property
    def stages_at_once(self) -> int:
        """Number of independent stages that fill the workers, or the queue of a cluster."""
        return self.workers if self.launcher == "local" else _STAGES_IN_QUEUE
