"""Batching of the lines of many requests."""

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from pipeline.decode.config import DecodeConfig
from pipeline.decode.job.replica import GivenUp
from pipeline.decode.text.line import Line, Translated
from pipeline.serve.config import BatchingConfig
from pipeline.tasks.call import TaskFailed


class Pool(Protocol):
    """The part of `TranslatorPool` that a Batcher needs."""

    def submit(self, lines: Sequence[Line], config: DecodeConfig | None = None) -> "Future[list[Translated]]": ...

    def give_up(self, future: "Future[list[Translated]]") -> None: ...


class Full(Exception):  # noqa: N818 - an answer to a client, not an error of the server
    """A request was refused, because as many requests as allowed are waiting."""


@dataclass(eq=False, kw_only=True)
class _Request:
    """A request whose lines are being translated.

    result: future of its translations.
    next: index of the first line that was not given to the pool.
    translations: translations so far, by index of the line.
    """

    lines: Sequence[Line]
    decode: DecodeConfig
    result: "asyncio.Future[list[Translated]]"
    next: int = 0
    translations: dict[int, Translated] = field(default_factory=dict)

    @property
    def num_left(self) -> int:
        return len(self.lines) - self.next


_Batch = list[tuple[_Request, int]]  # the request of each line and the line's index in it


class Batcher:
    """Makes calls of the pool from the lines of waiting requests, and takes one line of each request in turn.

    So a request of one line waits for the current calls only, even if other requests are long. Requests with different
    settings of decoding take turns. A line with more characters than a batch is a call of its own. If the pool has
    several workers, one is kept free of such lines.
    pool: processes that translate.
    config: sizes of batches.
    workers: calls that the pool makes at the same time.
    waiting: most requests at the same time.
    """

    def __init__(self, pool: Pool, config: BatchingConfig, *, workers: int, waiting: int) -> None:
        self._pool, self._config, self._most = pool, config, waiting
        self._free, self._free_of_long = workers, max(1, workers - 1)
        self._requests: list[_Request] = []  # requests with lines that the pool does not have yet, the next one first
        self._calls: set[asyncio.Task[list[Translated]]] = set()
        self.under_way = 0
        self.broken = False  # True if the last call failed

    async def translate(self, lines: Sequence[Line], decode: DecodeConfig) -> list[Translated]:
        """Return the translation of each line. Raises Full, or the error of the pool.

        If this is cancelled, the request leaves the queue. Its calls are given up, unless other requests share them.
        """
        if self.under_way >= self._most:
            raise Full
        loop = asyncio.get_running_loop()
        request = _Request(lines=lines, decode=decode, result=loop.create_future())
        self._requests.append(request)
        self.under_way += 1
        loop.call_later(self._config.wait_ms / 1000, self._start)
        try:
            return await request.result
        finally:
            self.under_way -= 1
            self._drop(request)

    def _drop(self, request: _Request) -> None:
        if request in self._requests:
            self._requests.remove(request)

    def _start(self) -> None:
        """Give the pool as many calls as it has free workers."""
        while self._free and (batch := self._next()):
            self._free -= 1
            self._free_of_long -= self._is_long(*batch[0])
            call = asyncio.ensure_future(self._call(batch))
            self._calls.add(call)  # the event loop keeps only a weak reference
            call.add_done_callback(partial(self._finish, batch))

    async def _call(self, batch: _Batch) -> list[Translated]:
        """Translate a batch by the pool, and give the call up when no request of the batch waits any more."""
        decode = batch[0][0].decode
        future = self._pool.submit([request.lines[index] for request, index in batch], decode)
        translations = asyncio.wrap_future(future)
        requests_end = asyncio.gather(*(request.result for request, _ in batch), return_exceptions=True)
        await asyncio.wait((translations, requests_end), return_when=asyncio.FIRST_COMPLETED)
        if not translations.done():
            self._pool.give_up(future)
        return await translations

    def _next(self) -> _Batch:
        """Take the lines of the next call: an even share for each free worker, but no more than a batch.

        The batch is empty if no request may have its turn now.
        """
        ready = [
            request for request in self._requests if self._free_of_long or not self._is_long(request, request.next)
        ]
        turn = deque(request for request in ready if request.decode == ready[0].decode)
        room = min(self._config.lines, -(-sum(request.num_left for request in turn) // self._free))
        batch: _Batch = []
        characters = 0
        while turn and len(batch) < room:
            request = turn.popleft()
            characters += len(request.lines[request.next].text)
            if batch and characters > self._config.characters:
                break
            batch.append((request, request.next))
            request.next += 1
            if request.num_left:
                turn.append(request)
        served = {request for request, _ in batch}
        self._requests = [
            *(request for request in self._requests if request not in served),
            *(request for request in self._requests if request in served and request.num_left),
        ]
        return batch

    def _is_long(self, request: _Request, index: int) -> bool:
        return len(request.lines[index].text) > self._config.characters

    def _finish(self, batch: _Batch, call: "asyncio.Task[list[Translated]]") -> None:
        self._calls.discard(call)
        self._free += 1
        self._free_of_long += self._is_long(*batch[0])
        error = TaskFailed("translate: the server is stopping") if call.cancelled() else call.exception()
        if not (call.cancelled() or isinstance(error, GivenUp)):
            self.broken = error is not None
        if error is None:
            for (request, index), translated in zip(batch, call.result(), strict=True):
                request.translations[index] = translated
        for request in {request for request, _ in batch}:
            if request.result.done():
                continue
            if error is not None:
                self._drop(request)
                request.result.set_exception(error)
            elif len(request.translations) == len(request.lines):
                request.result.set_result([request.translations[index] for index in range(len(request.lines))])
        self._start()
