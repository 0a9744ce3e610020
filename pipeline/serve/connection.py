"""Connections that send no request, or too little of one, end; and there are only so many."""

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

from pipeline.serve.config import LimitsConfig

_OF_WAITING = 4  # connections for each request that may wait: browsers and proxies keep some that are idle


def connections(limits: LimitsConfig) -> type[asyncio.Protocol]:
    """What uvicorn makes of each connection."""

    def connection(**settings: Any) -> asyncio.Protocol:
        return _Connection(H11Protocol(**settings), seconds=limits.seconds, most=_OF_WAITING * limits.waiting)

    return cast(type[asyncio.Protocol], connection)  # it is only called


class _Connection(asyncio.Protocol):
    """One that is closed when no request is complete, up to its body, for so many seconds. most: of these at once.

    uvicorn itself closes only those that send nothing at all after an answer.
    """

    def __init__(self, http: H11Protocol, *, seconds: float, most: int) -> None:
        self._http, self._seconds, self._most = http, seconds, most
        self._end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._http.connection_made(cast(asyncio.Transport, transport))
        if len(self._http.connections) > self._most:
            transport.close()
        self._watch()

    def data_received(self, data: bytes) -> None:
        self._http.data_received(data)
        self._watch()

    def eof_received(self) -> None:
        self._http.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        self._http.connection_lost(exc)

    def pause_writing(self) -> None:
        self._http.pause_writing()

    def resume_writing(self) -> None:
        self._http.resume_writing()

    def _watch(self) -> None:
        answering = self._http.cycle is not None and not self._http.cycle.response_complete
        if answering:
            self._unwatch()
        elif self._end is None:
            self._end = self._http.loop.call_later(self._seconds, self._http.transport.close)

    def _unwatch(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None
