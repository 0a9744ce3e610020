"""Processes of this machine that make calls. They are started when first needed, shared by all that ask, and gone when
this process is, however it ends."""

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

from pipeline.stage import Stopped, stopping
from pipeline.tasks.call import TaskFailed, environment

GRACE = 5.0  # seconds in which a worker without work ends by itself


class WorkerDied(Exception):  # noqa: N818
    """code: exit code, negative for a signal."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code

    def __str__(self) -> str:
        if self.code >= 0:
            return f"ended with exit code {self.code}"
        name = signal.Signals(-self.code).name
        return f"was killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")


class Worker:
    """One process, in a session of its own: Ctrl-C at the terminal reaches only the process that started it. settings:
    of its environment, beside those of every worker. descriptors: of ours, which it has by the same numbers."""

    def __init__(self, settings: Mapping[str, str] | None = None, *, descriptors: Sequence[int] = ()) -> None:
        self._ours, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pipeline.tasks.worker", str(theirs.fileno())],
                env={**os.environ, **environment(), **(settings or {})},
                pass_fds=[theirs.fileno(), *descriptors],
                stdin=subprocess.DEVNULL,
                stdout=2,  # ours may be where results go
                start_new_session=True,
            )
        self._killed = False

    def alive(self) -> bool:
        return not self._killed and self._process.poll() is None

    def call(self, call: bytes) -> bytes:
        """Raises WorkerDied."""
        try:
            self._ours.send_bytes(call)
            return self._ours.recv_bytes()
        except (EOFError, ConnectionError) as error:
            raise WorkerDied(self._process.wait()) from error

    def kill(self) -> None:
        self._killed = True
        self._process.kill()

    def close(self) -> None:
        self._ours.close()
        try:
            self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()


class _Pool:
    """So many threads, each of which keeps one worker."""

    def __init__(self, workers: int) -> None:
        self.threads = ThreadPoolExecutor(workers, thread_name_prefix="worker")
        self._own = threading.local()
        self._workers: list[Worker] = []

    def worker(self) -> Worker:
        """Of the thread that asks; a new one where it has none that lives."""
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
    """The calls of one asker, which it may give up."""

    def __init__(self, pool: _Pool) -> None:
        self._pool = pool
        self._given_up = False
        self._running: set[Worker] = set()
        self._lock = threading.Lock()

    def perform(self, call: bytes) -> bytes:
        """Raises WorkerDied, also when it is given up."""
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
        with self._lock:
            self._given_up = True
            for worker in self._running:
                worker.kill()


_pools: dict[int, _Pool] = {}
_lock = threading.Lock()


def run_in_workers(calls: Sequence[bytes], *, workers: int, title: str) -> Generator[tuple[int, bytes], None, None]:
    """Number and outcome of each call, as they end. Closing it ends those that are still made.

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
    """End the processes that now have nothing to do; the next call starts new ones."""
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
