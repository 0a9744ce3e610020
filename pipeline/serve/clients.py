"""Limits for each client, which is known by its address: connections at the same time, and requests in a second."""

import ipaddress
import math
import time
from collections import Counter, OrderedDict

from starlette.types import ASGIApp, Receive, Scope, Send

from pipeline.serve.config import LimitsConfig
from pipeline.serve.problem import Problem

_CONNECTIONS = 4  # connections for each request that may wait, because browsers and proxies keep idle ones
_IPV6_NETWORK = 64  # bits of a network whose addresses commonly all belong to one client


def client_name(address: str) -> str:
    """Return the name under which a client's connections and requests are counted.

    It is the IPv4 address, also of a mapped one, or the IPv6 network of 64 bits. Text that is no IP address, such as
    the path of a socket, is returned as it is.
    """
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    return str(ip.ipv4_mapped or ipaddress.IPv6Network((int(ip), _IPV6_NETWORK), strict=False))


class OpenConnections:
    """A counter of the open connections of each client."""

    def __init__(self, limits: LimitsConfig) -> None:
        self._most = _CONNECTIONS * limits.waiting
        self._most_of_client = limits.client_connections or self._most
        self._open: Counter[str] = Counter()

    def add(self, client: str) -> bool:
        """Count a new connection. Returns False, and counts nothing, if as many as allowed are open."""
        if self._open.total() >= self._most or self._open[client] >= self._most_of_client:
            return False
        self._open[client] += 1
        return True

    def remove(self, client: str) -> None:
        self._open[client] -= 1
        if not self._open[client]:
            del self._open[client]


class RequestRate:
    """A limit on the requests that a client may send in a second, by the generic cell rate algorithm (ITU-T I.371).

    A client may send the requests of one second at once. It is forgotten when its requests no longer count.
    per_second: requests, above 0.
    """

    def __init__(self, per_second: float) -> None:
        self._interval = 1 / per_second
        self._at_once = max(1.0, self._interval) + 1e-6  # seconds that requests may be ahead; 1e-6 is for rounding
        self._paid_until: OrderedDict[str, float] = OrderedDict()  # the client of the newest request is last

    def wait(self, client: str, now: float) -> float:
        """Return the seconds until the client may send a request. If they are 0, count one. now: seconds of a clock."""
        while self._paid_until and next(iter(self._paid_until.values())) <= now:
            self._paid_until.popitem(last=False)
        until = max(self._paid_until.get(client, now), now) + self._interval
        if until - now > self._at_once:
            return until - now - self._at_once
        self._paid_until[client] = until
        self._paid_until.move_to_end(client)
        return 0.0

    def __len__(self) -> int:
        return len(self._paid_until)


def for_each_client(app: ASGIApp, limits: LimitsConfig) -> ASGIApp:
    """Return the app with a limit of `limits.client_rate` requests in a second for each client.

    A request above the limit is answered with 429. Its connection is closed, so that the requests behind it in the
    connection cost nothing.
    """
    if not limits.client_rate:
        return app
    rate = RequestRate(limits.client_rate)

    async def limited(scope: Scope, receive: Receive, send: Send) -> None:
        seconds = 0.0
        if scope["type"] == "http" and scope["client"]:
            seconds = rate.wait(client_name(scope["client"][0]), time.monotonic())
        if not seconds:
            await app(scope, receive, send)
            return
        problem = Problem(
            *(429, f"one client may send {limits.client_rate:g} requests in a second"),
            remedy="send several lines in one request, or fewer requests",
            retry_after=math.ceil(seconds),
        )
        response = problem.response()
        response.headers["Connection"] = "close"
        await response(scope, receive, send)

    return limited
