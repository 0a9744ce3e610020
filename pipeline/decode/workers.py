"""Processes of this machine that hold a model and translate lines until they are closed. Free of torch, which they
alone load."""

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
from pipeline.decode.text import Line, Long, Translated
from pipeline.jobs.launch import common_environment
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.model.moe.drops import DropCount
from pipeline.tasks.call import TaskFailed, pack
from pipeline.tasks.pool import Worker, WorkerDied

if TYPE_CHECKING:
    from pipeline.decode.translator import Translator

_GIVEN_UP = b"\1"
LOADED = ("precision", "average", "average_of")  # settings of decoding that a loaded model has for good


class GivenUp(Exception):  # noqa: N818 - nobody is left whom it would tell of an error
    """What became of a call that nobody waits for any more."""


@dataclass(frozen=True, kw_only=True)
class TranslatorSpec:
    """What a Translator is made of. checkpoints, vocabulary: directories. experts: path of a pruning, empty for all.
    max_source_tokens, long: of `Translator`."""

    checkpoints: str
    vocabulary: str
    decode: DecodeConfig
    max_source_tokens: int
    long: Long = "split"
    experts: str = ""


@dataclass(frozen=True, kw_only=True)
class _Call:
    """What a worker is asked for; without lines it loads the model. flags: descriptor of a file whose byte of this
    worker says whether the call is given up."""

    spec: TranslatorSpec
    runtime: RuntimeConfig
    config: DecodeConfig
    flags: int
    lines: Sequence[Line] = ()


@dataclass(frozen=True, kw_only=True)
class _Done:
    """What a call comes to. asked, kept: as of DropCount."""

    found: list[Translated]
    asked: int
    kept: int


class TranslatorPool:
    """`runtime.processes` processes with one device each, which begin to load the model at once.

    A context that ends them. They are gone, too, when this process is, however it ends. drops: what a capacity of the
    experts has dropped so far.
    """

    def __init__(self, spec: TranslatorSpec, runtime: RuntimeConfig) -> None:
        self.spec, self.runtime = spec, runtime
        self.drops = DropCount()
        self._calls: SimpleQueue[tuple[Future[list[Translated]], bytes] | None] = SimpleQueue()
        self._closed = False
        self._lock = threading.Lock()
        self._flags = tempfile.TemporaryFile()  # noqa: SIM115 - `close` does
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
        """Until all processes have loaded the model. Raises what kept one from it: ValueError, OSError, TaskFailed."""
        for loaded in self._loaded:
            loaded.result()

    def submit(self, lines: Sequence[Line], config: DecodeConfig | None = None) -> "Future[list[Translated]]":
        """The lines' translations, in their order, all by one process: cut what is more than a few batches.

        config: in place of the spec's. Raises ValueError where the model would have to be loaded anew for it. The
        result may be an error, of the lines (ValueError) or that their process was lost (TaskFailed); the pool goes on.
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
        """Nobody waits for it: its call is not begun, or ends after the batch that is under way, with GivenUp."""
        with self._lock:
            if not self._closed and not future.cancel() and future in self._current:
                os.pwrite(self._flags.fileno(), _GIVEN_UP, self._current.index(future))

    def close(self) -> None:
        """End the processes, in the middle of a call too; what has no result yet is cancelled or lost."""
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
        place = {"RANK": slot, "LOCAL_RANK": slot, "WORLD_SIZE": self.runtime.processes}
        settings = {**common_environment(self.runtime.threads), **{name: str(of) for name, of in place.items()}}
        return Worker(settings, descriptors=[self._flags.fileno()])

    def _serve(self, slot: int) -> None:
        """Make one call after another with the worker of this slot."""
        self._load(slot, self._loaded[slot])
        while (asked := self._calls.get()) is not None:
            future, call = asked
            if self._closed:
                future.cancel()
            with self._lock:
                self._current[slot] = future
                if not self._closed:
                    os.pwrite(self._flags.fileno(), b"\0", slot)
            if not future.set_running_or_notify_cancel():
                continue
            if not self._workers[slot].alive():  # it was lost while it waited
                self._replace(slot)
            try:
                done: _Done = pickle.loads(self._workers[slot].call(call)).value()
                with self._lock:
                    self.drops.add(done)
                future.set_result(done.found)
            except WorkerDied as death:
                future.set_exception(_lost(death))
                self._replace(slot)
            except BaseException as error:  # noqa: BLE001 - it belongs to whoever asked
                future.set_exception(error)

    def _load(self, slot: int, loaded: "Future[None]") -> None:
        try:
            pickle.loads(self._workers[slot].call(self._pack((), self.spec.decode))).value()
        except WorkerDied as death:
            self._renew(slot)  # the next call loads the model, or dies of it
            loaded.set_exception(_lost(death))
        except BaseException as error:  # noqa: BLE001 - it belongs to `wait`, and to the calls, which meet it again
            loaded.set_exception(error)
        else:
            loaded.set_result(None)

    def _replace(self, slot: int) -> None:
        """A new process, which loads the model before the next call comes."""
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


_translators: dict[TranslatorSpec, "Translator"] = {}  # of a worker


def _perform(call: _Call) -> _Done:
    """In the worker."""
    if call.spec not in _translators:
        _translators[call.spec] = _load(call.spec, call.runtime)
    slot = int(os.environ["LOCAL_RANK"])

    def check() -> None:
        if os.pread(call.flags, 1, slot) == _GIVEN_UP:
            raise GivenUp("translate: nobody waits for it")

    translator = _translators[call.spec].using(call.config)
    found = dict(translator.translate(call.lines, check=check))
    return _Done(
        found=[found[index] for index in range(len(call.lines))],
        asked=translator.drops.asked,
        kept=translator.drops.kept,
    )


def _load(spec: TranslatorSpec, runtime: RuntimeConfig) -> "Translator":
    from pipeline.vocab.vocabulary import Vocabulary

    vocabulary = Vocabulary.load(Path(spec.vocabulary))

    from pipeline.decode.model import load_model
    from pipeline.decode.translator import Translator
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
