"""A pool of processes on this machine, each with a model, that translate lines until the pool is closed.

Free of torch, which only the processes of the pool load.
"""

import os
import pickle
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING

from pipeline.decode.config import DecodeConfig
from pipeline.decode.job.drops import DropRecord, add_record, drop_record
from pipeline.decode.text.line import Line, Long, Translated
from pipeline.jobs.launch import common_environment
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.jobs.visible_devices import check_devices
from pipeline.model.moe.drops import DropCount
from pipeline.tasks.call import TaskFailed, pack
from pipeline.tasks.pool import Worker, WorkerDied

if TYPE_CHECKING:
    from pipeline.decode.text.translator import Translator

_GIVEN_UP = b"\1"
LOADED = ("precision", "average", "average_of")  # settings of decoding that need another model to be loaded


class GivenUp(Exception):  # noqa: N818 - not an error, because nobody waits for the result
    """A call ended early because nobody waits for its result any more."""


@dataclass(frozen=True, kw_only=True)
class TranslatorSpec:
    """Values from which a process makes a Translator.

    checkpoints, vocabulary: directories.
    max_source_tokens, long: as in `Translator`.
    experts: path of a pruning, or empty for all experts.
    """

    checkpoints: str
    vocabulary: str
    decode: DecodeConfig
    max_source_tokens: int
    long: Long = "split"
    experts: str = ""


@dataclass(frozen=True, kw_only=True)
class _Call:
    """A request to a worker. Without lines it only loads the model.

    flags: descriptor of a file with one byte for each worker, which tells if its call is given up.
    """

    spec: TranslatorSpec
    runtime: RuntimeConfig
    config: DecodeConfig
    flags: int
    lines: Sequence[Line] = ()


@dataclass(frozen=True, kw_only=True)
class _Result:
    """The result of a call. drops: choices of experts that a capacity dropped."""

    translations: list[Translated]
    drops: DropRecord


class TranslatorPool:
    """A pool of `runtime.processes` processes with one device each, which begin to load the model at once.

    It is a context that ends the processes. They also end when this process ends for any reason.
    drops: count of the choices that a capacity of the experts has dropped so far.
    """

    def __init__(self, spec: TranslatorSpec, runtime: RuntimeConfig) -> None:
        check_devices(runtime.device, runtime.processes)
        self.spec, self.runtime = spec, runtime
        self.drops = DropCount()
        self._calls: SimpleQueue[tuple[Future[list[Translated]], bytes] | None] = SimpleQueue()
        self._closed = False
        self._lock = threading.Lock()
        self._flags = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        self._current: list[Future[list[Translated]] | None] = [None] * runtime.processes
        self._workers: list[Worker] = [self._start(slot) for slot in range(runtime.processes)]
        self._loaded: list[Future[None]] = [Future() for _ in self._workers]
        self._threads = [
            threading.Thread(target=self._serve, args=(slot,), daemon=True) for slot in range(runtime.processes)
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
        """Let one process translate lines, and return a future of the translations in their order.

        Submit many lines in pieces of a few batches, so that several processes share them.
        The future's error is ValueError for wrong lines, or TaskFailed if the process died. The pool continues.
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
                raise RuntimeError("the pool is closed")
            self._calls.put((future, self._pack(lines, config)))
        return future

    def give_up(self, future: "Future[list[Translated]]") -> None:
        """Cancel a call that nobody waits for. If it has begun, it ends with GivenUp after the current batch."""
        with self._lock:
            if not self._closed and not future.cancel() and future in self._current:
                os.pwrite(self._flags.fileno(), _GIVEN_UP, self._current.index(future))

    def close(self) -> None:
        """End the processes, even during a call. Calls without a result are cancelled or fail."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for _ in self._threads:
                self._calls.put(None)
            for worker in self._workers:
                worker.kill()
        for thread in self._threads:
            thread.join()
        for worker in self._workers:
            worker.close()
        self._flags.close()

    def _pack(self, lines: Sequence[Line], config: DecodeConfig) -> bytes:
        call = _Call(spec=self.spec, runtime=self.runtime, config=config, lines=lines, flags=self._flags.fileno())
        return pack(_perform, call, "translate")

    def _start(self, slot: int) -> Worker:
        place = {"RANK": str(slot), "LOCAL_RANK": str(slot), "WORLD_SIZE": str(self.runtime.processes)}
        return Worker({**common_environment(self.runtime.threads), **place}, descriptors=[self._flags.fileno()])

    def _serve(self, slot: int) -> None:
        """Make one call after another with the worker of this slot."""
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
            if not self._workers[slot].alive():  # it died while it waited for a call
                self._replace(slot)
            try:
                result: _Result = pickle.loads(self._workers[slot].call(call)).value()
                with self._lock:
                    add_record(self.drops, result.drops)
                future.set_result(result.translations)
            except WorkerDied as death:
                future.set_exception(_lost(death))
                self._replace(slot)
            except BaseException as error:  # noqa: BLE001 - the caller of `submit` gets it
                future.set_exception(error)

    def _load(self, slot: int, loaded: "Future[None]") -> None:
        try:
            pickle.loads(self._workers[slot].call(self._pack((), self.spec.decode))).value()
        except WorkerDied as death:
            self._renew(slot)  # the next call loads the model again
            loaded.set_exception(_lost(death))
        except BaseException as error:  # noqa: BLE001 - `wait` raises it, and so does every later call
            loaded.set_exception(error)
        else:
            loaded.set_result(None)

    def _replace(self, slot: int) -> None:
        """Start a new process, which loads the model before the next call."""
        if self._renew(slot):
            self._load(slot, Future())

    def _renew(self, slot: int) -> bool:
        with self._lock:
            if self._closed:
                return False
            self._workers[slot].close()
            self._workers[slot] = self._start(slot)
            return True


def _lost(death: WorkerDied) -> TaskFailed:
    return TaskFailed(
        f"translate: a process {death}; what it was given is not translated: give it again, with fewer lines at once, "
        "decode.batch_tokens or runtime.processes lowered if memory was short"
    )


_translators: dict[TranslatorSpec, "Translator"] = {}  # what a worker has loaded


def _perform(call: _Call) -> _Result:
    """Translate the lines of a call. It runs in a worker."""
    if call.spec not in _translators:
        _translators[call.spec] = _load(call.spec, call.runtime)
    slot = int(os.environ["LOCAL_RANK"])

    def check() -> None:
        if os.pread(call.flags, 1, slot) == _GIVEN_UP:
            raise GivenUp("translate: nobody waits for it")

    translator = _translators[call.spec].using(call.config)
    outcomes = dict(translator.translate(call.lines, check=check))
    return _Result(
        translations=[outcomes[index] for index in range(len(call.lines))], drops=drop_record(translator.drops)
    )


def _load(spec: TranslatorSpec, runtime: RuntimeConfig) -> "Translator":
    from pipeline.vocab.vocabulary import Vocabulary

    vocabulary = Vocabulary.load(Path(spec.vocabulary))

    from pipeline.decode.model import load_model
    from pipeline.decode.text.translator import Translator
    from pipeline.jobs.device import Place

    limit = spec.max_source_tokens
    device = Place.take(runtime).device
    model = load_model(
        Path(spec.checkpoints),
        vocabulary,
        longest=limit,
        config=spec.decode,
        device=device,
        experts=spec.experts,
    )
    return Translator(model, vocabulary, spec.decode, max_source_tokens=limit, long=spec.long)
