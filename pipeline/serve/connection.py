"""Limits for connections: their number, and the time in which they must send requests and take answers."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from pipeline.serve.clients import OpenConnections, client_name
from pipeline.serve.config import LimitsConfig

_READ = 8 * 1024  # bytes that are read at once, so that even chunks of one byte take only milliseconds
_AHEAD = 8 * _READ  # bytes of further requests that a connection may send while one is answered
_LINES = 10_000  # line ends of a request; a chunk has two, and each costs as much time as a kilobyte of a body


def connections(limits: LimitsConfig) -> type[asyncio.Protocol]:
    """Return the protocol class that uvicorn creates for each connection."""
    opened = OpenConnections(limits)

    def connection(**settings: Any) -> asyncio.BufferedProtocol:
        return _Connection(partial(H11Protocol, **settings), opened, seconds=limits.seconds)

    return cast(type[asyncio.Protocol], connection)  # it is only called


class _Connection(asyncio.BufferedProtocol):
    """A connection that is aborted if it breaks one of these limits.

    - The head of a request must be complete within some seconds.
    - The client must take the bytes of an answer within some seconds.
    - While a request is answered, at most `_AHEAD` bytes of further requests may come.
    - A request has at most `_LINES` lines.
    uvicorn itself only closes a connection that sends nothing after an answer was taken (timeout_keep_alive).

    make_http: makes uvicorn's protocol. It is not called if too many connections are open.
    opened: counter of the open connections.
    seconds: time for a request's head and for an answer.
    """

    _transport: asyncio.Transport
    _http: H11Protocol
    _request: "_Deadline"
    _answer: "_Deadline"

    def __init__(self, make_http: Callable[[], H11Protocol], opened: OpenConnections, *, seconds: float) -> None:
        self._make_http, self._opened, self._seconds = make_http, opened, seconds
        self._client: str | None = None  # None if the connection is not counted
        self._received = bytearray(_READ)
        self._cycle: object = None  # uvicorn's object for the current request
        self._lines = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        address, *_ = self._transport.get_extra_info("peername") or ("",)
        client = client_name(address)
        if not self._opened.add(client):
            self._transport.close()
            return
        self._client = client
        self._request, self._answer = (_Deadline(self._transport, self._seconds) for _ in range(2))
        self._transport.set_write_buffer_limits(0)  # pause_writing must come with the first byte that is not taken
        self._http = self._make_http()
        self._http.connection_made(self._transport)
        self._watch()

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._received

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(memoryview(self._received)[:nbytes])
        try:
            self._http.data_received(data)
        except h11.LocalProtocolError:  # uvicorn refuses a request that it has already answered
            self._transport.abort()
            return
        if self._cycle is not self._http.cycle:
            self._cycle, self._lines = self._http.cycle, 0
        self._lines += data.count(b"\n")
        if self._lines > _LINES or len(self._http.conn.trailing_data[0]) > _AHEAD:
            self._transport.abort()
        else:
            self._watch()

    def eof_received(self) -> None:
        self._http.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._client is None:
            return
        self._opened.remove(self._client)
        self._request.stop()
        self._answer.stop()
        self._http.connection_lost(exc)

    def pause_writing(self) -> None:
        self._answer.start()
        self._http.pause_writing()

    def resume_writing(self) -> None:
        self._answer.stop()
        self._http.resume_writing()

    def _watch(self) -> None:
        answering = self._http.cycle is not None and not self._http.cycle.response_complete
        if answering:
            self._request.stop()
        else:
            self._request.start()


class _Deadline:
    """A timer that aborts a connection some seconds after `start`, unless `stop` comes first.

    A second `start` does not postpone it.
    """

    def __init__(self, transport: asyncio.Transport, seconds: float) -> None:
        self._transport, self._seconds = transport, seconds
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._transport.abort)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
