"""Names by which a server may be asked for."""

import ipaddress
import socket
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from pipeline.serve.problem import Problem, shown


def for_its_hosts(app: ASGIApp, listener: socket.socket) -> ASGIApp:
    """Where only this machine can connect, the app for requests to a name of this machine.

    Another name is one that a site has made to lead here, so that its page can ask from this machine's browser as if
    it were ours.
    """
    if not _is_loopback(listener.getsockname()[0]):
        return app

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        host = Headers(scope=scope).get("host", "") if scope["type"] == "http" else ""
        if not host or _is_ours(host):  # every browser sends one
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


def _is_ours(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:  # brackets without an address in them
        return False
    return name == "localhost" or name.endswith(".localhost") or _is_loopback(name)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:  # a name
        return False
