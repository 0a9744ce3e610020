"""A pool of processes on this machine, with replicas of a model, that translate lines until the pool is closed.

Free of torch, which only the processes of the pool load.
"""

import os
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from types import TracebackType

from pipeline.decode.config import DecodeConfig
from pipeline.decode.job.calls import GIVEN_UP, TITLE, Call, Result, TranslatorSpec, perform
from pipeline.decode.job.drops import add_record
from pipeline.decode.job.replica import Replica, ReplicaLost, runtime_of_replica
from pipeline.decode.text.line import Line, Translated
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.jobs.visible_devices import check_devices
from pipeline.model.moe.drops import DropCount
from pipeline.tasks.call import TaskFailed, pack

LOADED = ("precision", "average", "average_of", "ensemble", "combine")  # settings that need another model to be loaded
_CLOSED = "the pool is closed"


class TranslatorPool:
    """A pool of `runtime.processes` processes with one device each, which begin to load the model at once.

    Each process has the whole model, or `runtime.ep` of them make a replica, in which each has a share of the experts.
    It is a context that ends the processes. They also end when this process ends for any reason.
    num_replicas: calls that are made at the same time.
    drops: count of the choices that a capacity of the experts has dropped so far.
    """

    def __init__(self, spec: TranslatorSpec, runtime: RuntimeConfig) -> None:
        check_devices(runtime.device, runtime.processes)
        self.spec, self.runtime = spec, runtime
        self._replica_runtime = runtime_of_replica(runtime)
        self.num_replicas = runtime.processes // self._replica_runtime.processes
        self.drops = DropCount()
        self._calls: SimpleQueue[tuple[Future[list[Translated]], bytes] | None] = SimpleQueue()
        self._closed = False
        self._lock = threading.Lock()
        self._flags = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        self._current: list[Future[list[Translated]] | None] = [None] * self.num_replicas
        self._replicas = [self._start(slot) for slot in range(self.num_replicas)]
        self._loaded: list[Future[None]] = [Future() for _ in self._replicas]
        self._threads = [
            threading.Thread(target=self._serve, args=(slot,), daemon=True) for slot in range(self.num_replicas)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> "TranslatorPool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def wait(self) -> None:
        """Wait until all processes have loaded the model. Raises their ValueError, OSError or TaskFailed."""
        for loaded in self._loaded:
            loaded.result()

    def submit(self, lines: Sequence[Line], config: DecodeConfig | None = None) -> "Future[list[Translated]]":
        """Let one replica translate lines, and return a future of the translations in their order.

        Submit many lines in pieces of a few batches, so that several replicas share them.
        The future's error is ValueError for wrong lines, or TaskFailed if a process died. The pool continues.
        config: settings in place of the spec's. Raises ValueError if they need another model to be loaded.
        """
        config = config or self.spec.decode
        for name in LOADED:
            if getattr(config, name) != getattr(self.spec.decode, name):
                raise ValueError(
                    f"decode.{name}={getattr(config, name)}: the model is loaded with {getattr(self.spec.decode, name)}"
                    "; start again with the other"
                )
        future: Future[list[Translated]] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError(_CLOSED)
            self._calls.put((future, self._pack(lines, config)))
        return future

    def give_up(self, future: "Future[list[Translated]]") -> None:
        """Cancel a call that nobody waits for. If it has begun, it ends with GivenUp after the current batch."""
        with self._lock:
            if not self._closed and not future.cancel() and future in self._current:
                os.pwrite(self._flags.fileno(), GIVEN_UP, self._current.index(future))

    def close(self) -> None:
        """End the processes, even during a call. Calls without a result are cancelled or fail."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for _ in self._threads:
                self._calls.put(None)
            for replica in self._replicas:
                replica.kill()
        for thread in self._threads:
            thread.join()
        for replica in self._replicas:
            replica.close()
        self._flags.close()

    def _pack(self, lines: Sequence[Line], config: DecodeConfig) -> bytes:
        runtime, flags = self._replica_runtime, self._flags.fileno()
        call = Call(spec=self.spec, runtime=runtime, config=config, lines=lines, flags=flags)
        return pack(perform, call, TITLE)

    def _start(self, slot: int) -> Replica:
        return Replica(slot, self.runtime, descriptors=[self._flags.fileno()])

    def _serve(self, slot: int) -> None:
        """Make one call after another with the replica of this slot."""
        self._load(slot, self._loaded[slot])
        while (entry := self._calls.get()) is not None:
            future, call = entry
            if self._closed:
                future.cancel()
            with self._lock:
                self._current[slot] = future
                if not self._closed:
                    os.pwrite(self._flags.fileno(), b"\0", slot)
            if not future.set_running_or_notify_cancel():
                continue
            try:
                if not self._replicas[slot].alive():  # it died while it waited for a call, or could not be replaced
                    self._replace(slot).result()
            except BaseException as error:  # noqa: BLE001 - the caller of `submit` gets it
                future.set_exception(error)
            else:
                self._call(slot, future, call)

    def _call(self, slot: int, future: "Future[list[Translated]]", call: bytes) -> None:
        """Make a call with the replica of this slot, and replace the replica if the call has ended it."""
        try:
            results: list[Result] = self._replicas[slot].call(call)
            with self._lock:
                for result in results:
                    add_record(self.drops, result.drops)
            future.set_result(_in_order([result.translations for result in results]))
        except ReplicaLost as lost:
            future.set_exception(_failed(lost))
        except BaseException as error:  # noqa: BLE001 - the caller of `submit` gets it
            future.set_exception(error)
        if not self._replicas[slot].alive():
            self._replace(slot)

    def _load(self, slot: int, loaded: "Future[None]") -> None:
        try:
            self._replicas[slot].call(self._pack((), self.spec.decode), loads=True)
        except ReplicaLost as lost:
            loaded.set_exception(_failed(lost))  # the next call loads the model again
        except BaseException as error:  # noqa: BLE001 - `wait` raises it, and so does every later call
            loaded.set_exception(error)
        else:
            loaded.set_result(None)

    def _replace(self, slot: int) -> Future[None]:
        """Start new processes and load the model. Return a future as those of `_loaded`, which has ended.

        If new processes cannot be started, the next call tries again.
        """
        loaded: Future[None] = Future()
        try:
            self._renew(slot)
        except OSError as error:
            failure = TaskFailed(f"{TITLE}: new processes cannot be started ({error}); make room, and give it again")
            failure.__cause__ = error
            loaded.set_exception(failure)
        except RuntimeError as error:
            loaded.set_exception(error)
        else:
            self._load(slot, loaded)
        return loaded

    def _renew(self, slot: int) -> None:
        """Start new processes. Raises OSError, and RuntimeError if the pool is closed."""
        with self._lock:
            if self._closed:
                raise RuntimeError(_CLOSED)
            self._replicas[slot].kill()  # a suspended one would not end by itself
            self._replicas[slot].close()
            self._replicas[slot] = self._start(slot)


def _failed(lost: ReplicaLost) -> TaskFailed:
    return TaskFailed(
        f"{TITLE}: {lost}; what it was given is not translated: give it again, with fewer lines at once, "
        "decode.batch_tokens or runtime.processes lowered if memory was short"
    )


def _in_order(translations: Sequence[list[Translated]]) -> list[Translated]:
    """Return the translations of all lines. Process r of n has those of the lines r, r + n, r + 2n, …"""
    shares = [iter(share) for share in translations]
    return [next(shares[number % len(shares)]) for number in range(sum(map(len, translations)))]
