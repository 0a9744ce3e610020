"""Processes of this machine that make calls.

They are started when first needed, shared by all threads, and end with this process, however it ends.
"""

import atexit
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from multiprocessing import Pipe
from queue import Empty, SimpleQueue

from pipeline.stopping import Stopped, stopping
from pipeline.tasks.call import TaskFailed, environment

GRACE = 5.0  # seconds in which a worker without work ends by itself


class WorkerDied(Exception):  # noqa: N818
    """The process of a worker ended. code: exit code, negative for a signal."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code

    def __str__(self) -> str:
        if self.code >= 0:
            return f"ended with exit code {self.code}"
        name = signal.Signals(-self.code).name
        return f"was killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")


class Worker:
    """One process, in a session of its own, so that Ctrl-C at the terminal does not reach it.

    settings: variables of its environment, besides those of every worker.
    descriptors: descriptors of this process that it inherits.
    """

    def __init__(self, settings: Mapping[str, str] | None = None, *, descriptors: Sequence[int] = ()) -> None:
        self.connection, remote = Pipe()
        with remote:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pipeline.tasks.worker", str(remote.fileno())],
                env={**os.environ, **environment(), **(settings or {})},
                pass_fds=[remote.fileno(), *descriptors],
                stdin=subprocess.DEVNULL,
                stdout=2,  # the standard output may be for results
                start_new_session=True,
            )
        self._killed = False

    def alive(self) -> bool:
        return not self._killed and self.exit_code() is None

    def exit_code(self) -> int | None:
        """Return the exit code, negative for a signal, or None while the process runs."""
        return self._process.poll()

    def call(self, call: bytes) -> bytes:
        """Make a call in the process and return its outcome. Raises WorkerDied."""
        self.send(call)
        return self.receive()

    def send(self, call: bytes) -> None:
        """Let the process begin a call. Raises WorkerDied."""
        try:
            self.connection.send_bytes(call)
        except ConnectionError as error:
            raise WorkerDied(self._process.wait()) from error

    def receive(self) -> bytes:
        """Wait for the outcome of the call that was sent, and return it. Raises WorkerDied."""
        try:
            return self.connection.recv_bytes()
        except (EOFError, ConnectionError) as error:
            raise WorkerDied(self._process.wait()) from error

    def kill(self) -> None:
        self._killed = True
        self._process.kill()

    def close(self) -> None:
        self.connection.close()
        try:
            self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()


class _Pool:
    """Threads, each of which keeps one worker."""

    def __init__(self, workers: int) -> None:
        self.threads = ThreadPoolExecutor(workers, thread_name_prefix="worker")
        self._own = threading.local()
        self._workers: list[Worker] = []

    def worker(self) -> Worker:
        """Return the worker of this thread, and start a new one if it has none that lives."""
        worker: Worker | None = getattr(self._own, "worker", None)
        if worker is None or not worker.alive():
            if worker is not None:
                worker.close()
                self._workers.remove(worker)
            worker = self._own.worker = Worker()
            self._workers.append(worker)
        return worker

    def close(self) -> None:
        self.threads.shutdown()
        for worker in self._workers:
            worker.close()


class _Batch:
    """The calls of one `run_in_workers`, which can be given up."""

    def __init__(self, pool: _Pool) -> None:
        self._pool = pool
        self._given_up = False
        self._running: set[Worker] = set()
        self._lock = threading.Lock()

    def perform(self, call: bytes) -> bytes:
        """Make a call in the worker of this thread. Raises WorkerDied, also when the batch is given up."""
        with self._lock:
            if self._given_up:
                raise WorkerDied(-signal.SIGKILL)
            worker = self._pool.worker()
            self._running.add(worker)
        try:
            return worker.call(call)
        finally:
            with self._lock:
                self._running.discard(worker)

    def give_up(self) -> None:
        """End the workers that are making these calls."""
        with self._lock:
            self._given_up = True
            for worker in self._running:
                worker.kill()


_pools: dict[int, _Pool] = {}
_lock = threading.Lock()


def run_in_workers(calls: Sequence[bytes], *, workers: int, title: str) -> Generator[tuple[int, bytes], None, None]:
    """Yield number and outcome of each call, as they end. Closing the generator ends the other calls.

    Raises Stopped, and TaskFailed when a worker is lost.
    """
    with _lock:
        pool = _pools.setdefault(workers, _Pool(workers))
    batch = _Batch(pool)
    ended: SimpleQueue[Future[bytes]] = SimpleQueue()
    numbers: dict[Future[bytes], int] = {}
    try:
        for number, call in enumerate(calls):
            future = pool.threads.submit(batch.perform, call)
            numbers[future] = number
            future.add_done_callback(ended.put)
        for _ in calls:
            future = _next(ended, title)
            try:
                outcome = future.result()
            except WorkerDied as death:
                raise TaskFailed(
                    f"{title}: task {numbers[future] + 1} of {len(calls)}: its process {death}; finished tasks are "
                    "kept: make room, or lower runtime.data.workers or runtime.data.shard_rows, then run the same "
                    "command again"
                ) from death
            yield numbers[future], outcome
    finally:
        for future in numbers:
            future.cancel()
        batch.give_up()
        wait(numbers)


def end_workers() -> None:
    """End all workers; the next call starts new ones."""
    with _lock:
        pools = list(_pools.values())
        _pools.clear()
    for pool in pools:
        pool.close()


atexit.register(end_workers)


def _next(ended: "SimpleQueue[Future[bytes]]", title: str) -> "Future[bytes]":
    while not stopping.is_set():
        try:
            return ended.get(timeout=0.2)
        except Empty:
            continue
    raise Stopped(title)
