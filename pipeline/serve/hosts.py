"""A check of the Host header, for a server that only this machine can reach."""

import ipaddress
import socket
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from pipeline.serve.problem import Problem, shown


def for_its_hosts(app: ASGIApp, listener: socket.socket) -> ASGIApp:
    """Return an app that refuses requests for other hosts, if the server listens on a loopback address.

    Such a request comes from a page of another site, whose name was made to lead to this machine (DNS rebinding). The
    browser would let that page read the answers.
    """
    if not _is_loopback(listener.getsockname()[0]):
        return app

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        host = Headers(scope=scope).get("host", "") if scope["type"] == "http" else ""
        if not host or _is_this_machine(host):  # every browser sends a Host, so a request without one is no attack
            await app(scope, receive, send)
        else:
            problem = Problem(
                *(421, f"this server is not {shown(host)}"),
                field="Host",
                value=host,
                remedy="ask for 127.0.0.1 or localhost; a reverse proxy has to send the Host of its proxy_pass",
            )
            await problem.response()(scope, receive, send)

    return guarded


def _is_this_machine(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:  # brackets without an address between them
        return False
    return name == "localhost" or name.endswith(".localhost") or _is_loopback(name)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:  # a name
        return False
