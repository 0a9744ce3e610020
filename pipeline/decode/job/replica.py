"""A replica of a model: the processes of this machine that hold it together, and make every call together.

Usually that is one process with the whole model. If `runtime.ep` cuts the experts, the processes of a replica meet as
those of a job do (`pipeline.jobs.launch`): in a file in memory, and on the loopback interface.

Free of torch, which only the processes load.
"""

import pickle
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing.connection import wait
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pipeline.jobs.launch import REPORTS, common_environment, failure, interface_variables, read_reports
from pipeline.jobs.memory_file import memory_file
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.tasks.call import Outcome
from pipeline.tasks.pool import Worker, WorkerDied

_LAST_WORDS = 0.5  # seconds in which processes report why they end, after the first one has ended


class GivenUp(Exception):  # noqa: N818 - not an error, because nobody waits for the result
    """A call ended early because nobody waits for its result any more."""


class ReplicaLost(Exception):  # noqa: N818 - as WorkerDied
    """A process of a replica ended, and so the replica; the message names the process."""


def runtime_of_replica(runtime: RuntimeConfig) -> RuntimeConfig:
    """Return the settings of each replica's processes, of a command with these settings.

    `runtime.ep` processes share the experts, unless `runtime.decode_experts` puts all of them in every process.
    """
    if runtime.ep == 1 or runtime.decode_experts == "replicated":
        return replace(runtime, processes=1, ep=1, mp=1, decode_experts="replicated")
    return replace(runtime, processes=runtime.ep, mp=1, decode_experts="sharded")


class Replica:
    """The processes of one replica, each with one device.

    number: number of the replica among those of the command.
    runtime: settings of the command.
    descriptors: descriptors of this process that they inherit.
    """

    def __init__(self, number: int, runtime: RuntimeConfig, *, descriptors: Sequence[int] = ()) -> None:
        self._size = runtime_of_replica(runtime).processes
        self._resources = ExitStack()
        self._directory = Path(self._resources.enter_context(TemporaryDirectory(prefix="babelshard-")))
        store, reports = (
            self._resources.enter_context(memory_file(self._directory / name)) for name in ("rendezvous", "reports")
        )
        self._reports = reports.path
        self._agreed: tuple[type[Exception], ...] = ()  # errors of which all processes know
        self._ended = False
        variables = {
            **common_environment(runtime.threads),
            **interface_variables("lo"),
            "WORLD_SIZE": str(self._size),
            "LOCAL_WORLD_SIZE": str(runtime.processes),
            "BABELSHARD_RENDEZVOUS": f"file://{store.path}",
            REPORTS: str(reports.path),
        }
        inherited = [*descriptors, *store.descriptors, *reports.descriptors]
        self._workers = [
            Worker(
                {**variables, "RANK": str(rank), "LOCAL_RANK": str(number * self._size + rank)}, descriptors=inherited
            )
            for rank in range(self._size)
        ]

    def alive(self) -> bool:
        return all(worker.alive() for worker in self._workers)

    def call(self, call: bytes, *, loads: bool = False) -> list[Any]:
        """Make a call in all processes, and return their results by rank.

        Raises the error of the call, or ReplicaLost. After ReplicaLost, and after an error of one process that the
        others do not know of, because they still wait for it, all processes are ended.
        loads: the call loads the model. Then no process knows of another's error.
        """
        self._agreed = () if loads else (ValueError, GivenUp)
        outcomes: dict[Worker, Outcome] = {}
        try:
            for worker in self._workers:
                worker.send(call)
            while len(outcomes) < self._size and all(map(self._in_step, outcomes.values())):
                ready = wait([worker.connection for worker in self._workers])  # a worker with an outcome may end
                outcomes |= {w: pickle.loads(w.receive()) for w in self._workers if w.connection in ready}
        except WorkerDied as death:
            raise self._lost(f"a process {death}") from death
        return self._results([outcomes[worker] for worker in self._workers if worker in outcomes])

    def kill(self) -> None:
        self._ended = True
        for worker in self._workers:
            worker.kill()

    def close(self) -> None:
        for worker in self._workers:
            worker.close()
        self._resources.close()

    def _in_step(self, outcome: Outcome) -> bool:
        """Return false for an error with which a process ended a call while its peers may wait for it."""
        return self._size == 1 or outcome.error is None or isinstance(outcome.error, self._agreed)

    def _results(self, outcomes: Sequence[Outcome]) -> list[Any]:
        """Return the results. Raises the error of a process, rather than that of those that gave up with it."""
        failed = [outcome for outcome in outcomes if outcome.error is not None]
        if not failed:
            return [outcomes[0].value(), *(outcome.result for outcome in outcomes[1:])]  # one process's records suffice
        if len(failed) < self._size or not all(map(self._in_step, failed)):
            self._end()
        cause = next((outcome for outcome in failed if not isinstance(outcome.error, GivenUp)), failed[0])
        return [cause.value()]  # raises it

    def _end(self) -> None:
        """End all processes, which are out of step. Raises ReplicaLost if the errors come from one that has ended."""
        time.sleep(_LAST_WORDS)
        if any(worker.exit_code() is not None for worker in self._workers):
            raise self._lost("a process ended")
        self.kill()

    def _lost(self, reason: str) -> ReplicaLost:
        """End all processes, and return the error. reason: that of one process, unless several tell more."""
        if self._size > 1 and not self._ended:
            time.sleep(_LAST_WORDS)
            codes = [worker.exit_code() for worker in self._workers]
            reason = failure(codes, read_reports(self._directory, self._reports), {})
        self.kill()
        return ReplicaLost(reason)
