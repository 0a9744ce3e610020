"""A real HTTP server for tests of downloads. It serves files from memory, and fails on request."""

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.unit.corpus.sources.serving import QuietHandler, serving


@dataclass
class Site:
    """The files of a server, its faults, and its requests so far.

    files: content by path.
    faults: by path, the faults of the next requests, in order: a status, `cut` (half of the answer, then the
        connection closes), or `silence`.
    validators: headers that identify the version of a file.
    ranges: whether it answers requests for a part of a file.
    requests: path and headers of every request.
    after_cut: called after a connection was cut.
    claimed: bytes that it announces, if not 0.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, list[int | str]] = field(default_factory=dict)
    validators: tuple[str, ...] = ("ETag",)
    ranges: bool = True
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    after_cut: Callable[[], None] = lambda: None
    retry_after: str = ""
    claimed: int = 0
    url: str = ""

    def ranges_asked(self) -> list[str]:
        return [headers.get("Range", "") for _, headers in self.requests]


@contextmanager
def serve(site: Site) -> Iterator[Site]:
    """Serve a site until the end of the block."""
    over = threading.Event()

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            site.requests.append((self.path, dict(self.headers)))
            faults = site.faults.get(self.path, [])
            fault = faults.pop(0) if faults else None
            if fault == "silence":
                over.wait(30)
                return
            if isinstance(fault, int) or self.path not in site.files:
                self.send_response(fault if isinstance(fault, int) else 404)
                if site.retry_after:
                    self.send_header("Retry-After", site.retry_after)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self._send(site.files[self.path], cut=fault == "cut")

        def _send(self, content: bytes, *, cut: bool) -> None:
            marks = {"ETag": f'"{hashlib.md5(content).hexdigest()}"', "Last-Modified": formatdate(len(content))}
            marks = {name: marks[name] for name in site.validators}
            span, start = self.headers.get("Range", ""), 0
            if site.ranges and span and self.headers.get("If-Range", "") in marks.values():
                start = int(span.removeprefix("bytes=").rstrip("-"))
            self.send_response(206 if start else 200)
            for name, value in marks.items():
                self.send_header(name, value)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.send_header("Content-Length", str(site.claimed or len(content) - start))
            self.end_headers()
            body = content[start:]
            self.wfile.write(body[: len(body) // 2] if cut else body)
            if cut:
                site.after_cut()
                self.wfile.flush()
                self.close_connection = True

    with serving(Handler) as site.url:
        try:
            yield site
        finally:
            over.set()


def free_port() -> int:
    """Return a port on which no server listens."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        return int(server.server_address[1])
