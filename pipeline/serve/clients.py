"""Limits for each client, known by its address: connections at once, and requests in a second."""

import ipaddress
import math
import time
from collections import Counter, OrderedDict

from starlette.types import ASGIApp, Receive, Scope, Send

from pipeline.serve.config import LimitsConfig
from pipeline.serve.problem import Problem

_OF_WAITING = 4  # connections for each request that may wait: browsers and proxies keep some that are idle
_IPV6_NETWORK = 64  # bits; one client commonly has all addresses of such a network


def client_name(address: str) -> str:
    """The name that a client's connections and requests are counted by.

    It is the address; of IPv6 it is the network of 64 bits, and a mapped IPv4 address is that address. What is no IP
    address, such as the path of a socket, is its own name.
    """
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    return str(ip.ipv4_mapped or ipaddress.IPv6Network((int(ip), _IPV6_NETWORK), strict=False))


class OpenConnections:
    """Counts the connections of all clients, and those of each."""

    def __init__(self, limits: LimitsConfig) -> None:
        self._most = _OF_WAITING * limits.waiting
        self._most_of_client = limits.client_connections or self._most
        self._open: Counter[str] = Counter()

    def add(self, client: str) -> bool:
        """Count one more, unless there are as many as may be; tells whether it was counted."""
        if self._open.total() >= self._most or self._open[client] >= self._most_of_client:
            return False
        self._open[client] += 1
        return True

    def remove(self, client: str) -> None:
        self._open[client] -= 1
        if not self._open[client]:
            del self._open[client]


class RequestRate:
    """Lets each client send so many requests a second, and a second's worth of them at once.

    This is the generic cell rate algorithm (ITU-T I.371). A client is remembered no longer than its requests count.
    per_second: requests, above 0.
    """

    def __init__(self, per_second: float) -> None:
        self._interval = 1 / per_second
        self._at_once = max(1.0, self._interval) + 1e-6  # seconds that requests may be ahead, sums of floats rounded
        self._paid_until: OrderedDict[str, float] = OrderedDict()  # the client that asked last is last

    def wait(self, client: str, now: float) -> float:
        """Seconds until the client may send a request, or 0, and then one is counted. now: seconds of a clock."""
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
    """The app with `limits.client_rate` requests a second for each client.

    One more is answered with 429, and its connection closed, so that those behind it in the connection cost nothing.
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
