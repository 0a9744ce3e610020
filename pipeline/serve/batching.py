"""Lines of many requests, translated together."""

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from pipeline.decode.config import DecodeConfig
from pipeline.decode.text import Line, Translated
from pipeline.decode.workers import GivenUp
from pipeline.serve.config import BatchingConfig
from pipeline.tasks.call import TaskFailed


class Pool(Protocol):
    """What translates: `TranslatorPool`."""

    def submit(self, lines: Sequence[Line], config: DecodeConfig | None = None) -> "Future[list[Translated]]": ...

    def give_up(self, future: "Future[list[Translated]]") -> None: ...


class Full(Exception):  # noqa: N818 - an answer to a client, not an error of ours
    """As many requests as may wait do so."""


@dataclass(eq=False, kw_only=True)
class _Request:
    """next: first line that is not given to the pool yet."""

    lines: Sequence[Line]
    decode: DecodeConfig
    done: "asyncio.Future[list[Translated]]"
    next: int = 0
    found: dict[int, Translated] = field(default_factory=dict)

    @property
    def left(self) -> int:
        return len(self.lines) - self.next


_Batch = list[tuple[_Request, int]]  # lines by their request and their place in it


class Batcher:
    """Gathers what waits into calls of the pool, a line of each request in turn.

    So a request of one line is never behind more than the calls under way, however long the others are. Requests with
    different settings of decoding take turns. A line of more characters than a batch takes is a call of its own, and
    one of several workers is kept free of these. workers: calls that the pool makes at once. waiting: most requests.
    """

    def __init__(self, pool: Pool, config: BatchingConfig, *, workers: int, waiting: int) -> None:
        self._pool, self._config, self._most = pool, config, waiting
        self._free, self._free_of_long = workers, max(1, workers - 1)
        self._requests: list[_Request] = []  # those with lines that the pool does not have yet, whose turn it is first
        self._calls: set[asyncio.Task[list[Translated]]] = set()
        self.under_way = 0
        self.broken = False  # whether the last call was lost

    async def translate(self, lines: Sequence[Line], decode: DecodeConfig) -> list[Translated]:
        """What became of each line. Cancelled, it leaves nothing in the queue, and nothing with the pool
        that is of no other request. Raises Full, or what the pool does."""
        if self.under_way >= self._most:
            raise Full
        loop = asyncio.get_running_loop()
        request = _Request(lines=lines, decode=decode, done=loop.create_future())
        self._requests.append(request)
        self.under_way += 1
        loop.call_later(self._config.wait_ms / 1000, self._start)
        try:
            return await request.done
        finally:
            self.under_way -= 1
            self._drop(request)

    def _drop(self, request: _Request) -> None:
        if request in self._requests:
            self._requests.remove(request)

    def _start(self) -> None:
        """Give the pool what it has room for."""
        while self._free and (batch := self._next()):
            self._free -= 1
            self._free_of_long -= self._is_long(*batch[0])
            call = asyncio.ensure_future(self._call(batch))
            self._calls.add(call)  # the loop itself would not keep it
            call.add_done_callback(partial(self._finish, batch))

    async def _call(self, batch: _Batch) -> list[Translated]:
        """What the pool finds, which gives it up when no request of the batch waits any more."""
        (request, _), *_ = batch
        future = self._pool.submit([of.lines[index] for of, index in batch], request.decode)
        found = asyncio.wrap_future(future)
        nobody = asyncio.gather(*(of.done for of, _ in batch), return_exceptions=True)
        await asyncio.wait((found, nobody), return_when=asyncio.FIRST_COMPLETED)
        if not found.done():
            self._pool.give_up(future)
        return await found

    def _next(self) -> _Batch:
        """The next call's lines: an even share for each worker that is free, within the bounds of a batch. None if no
        request may have its turn now."""
        ready = [of for of in self._requests if self._free_of_long or not self._is_long(of, of.next)]
        turn = deque(request for request in ready if request.decode == ready[0].decode)
        room = min(self._config.lines, -(-sum(request.left for request in turn) // self._free))
        batch: _Batch = []
        characters = 0
        while turn and len(batch) < room:
            request = turn.popleft()
            characters += len(request.lines[request.next].text)
            if batch and characters > self._config.characters:
                break
            batch.append((request, request.next))
            request.next += 1
            if request.left:
                turn.append(request)
        served = {request for request, _ in batch}
        self._requests = [
            *(request for request in self._requests if request not in served),
            *(request for request in self._requests if request in served and request.left),
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
                request.found[index] = translated
        for request in {request for request, _ in batch}:
            if request.done.done():
                continue
            if error is not None:
                self._drop(request)
                request.done.set_exception(error)
            elif len(request.found) == len(request.lines):
                request.done.set_result([request.found[index] for index in range(len(request.lines))])
        self._start()
