"""Clients that block connections, fill memory or fill the log: they take no answer, send ahead, or send no HTTP."""

import socket
import threading
import time
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

import pytest
import requests

from tests.serving import served

PATIENCE = 15  # seconds that a test waits, much longer than the server does


def connected(server, receive_buffer=None):
    url = urlsplit(server.url)
    connection = socket.socket()
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(PATIENCE)
    connection.connect((url.hostname, url.port))
    return connection


def stuck(server):
    """Return the server's connections with bytes of an answer that the system has not taken."""
    connections = list(server.server.server_state.connections)
    return [connection for connection in connections if connection.transport.get_write_buffer_size()]


def with_large_answer(server, receive_buffer=4096):
    """Return a connection whose client has requested 8 MB, which is more than the system's buffers hold."""
    connection = connected(server, receive_buffer)
    port = connection.getsockname()[1]
    text = '{"pair": "de-en", "beam": 8, "n_best": 8, "text": "' + "x" * 900_000 + '"}'
    head = "POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {len(text)}\r\n\r\n{text}".encode())
    end = time.monotonic() + PATIENCE
    while port not in [protocol.client[1] for protocol in stuck(server)]:
        assert time.monotonic() < end
        time.sleep(0.005)
    return connection


@pytest.mark.parametrize("bytes_at_once", [0, 100], ids=["takes nothing", "takes little"])
def test_a_client_that_does_not_take_its_answer_keeps_no_connection(bytes_at_once):
    with served(limits={"seconds": 2, "waiting": 1, "characters": 10**6}) as server, ExitStack() as stack:
        blocking = [stack.enter_context(with_large_answer(server)) for _ in range(4)]  # all that may be open
        end = time.monotonic() + PATIENCE
        num_bytes = 0
        while True:
            try:
                assert requests.get(f"{server.url}/v1/pairs", timeout=PATIENCE).ok
                break
            except requests.ConnectionError:
                assert time.monotonic() < end, f"{len(stuck(server))} connections are kept"
            for connection in blocking if bytes_at_once else ():
                try:
                    num_bytes += len(connection.recv(bytes_at_once))
                except ConnectionError:
                    continue
            time.sleep(0.05)
        assert num_bytes < 100_000


def test_a_slow_client_that_takes_its_answer_in_time_gets_it():
    with served(limits={"seconds": 20, "characters": 10**6}) as server, with_large_answer(server, 2**18) as connection:
        time.sleep(0.5)
        received = bytearray()
        while b'"seconds":' not in received[-100:]:
            received += connection.recv(1 << 20)
        assert len(received) > 8_000_000
        connection.sendall(b"GET /v1/pairs HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 200")


def test_requests_that_are_sent_ahead_fill_no_memory():
    with served() as server, connected(server) as connection:
        body = b'{"pair": "de-en", "text": "ja"}'
        head = b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        requests_ahead = (head + b"Content-Length: %d\r\n\r\n" % len(body) + body) * 1000

        def send():
            try:
                for _ in range(500):
                    connection.sendall(requests_ahead)
            except OSError:  # the server should close the connection
                return

        sender = threading.Thread(target=send)
        sender.start()
        largest = 0
        end = time.monotonic() + 5
        try:
            while time.monotonic() < end and connection.recv(1 << 16):
                connections = list(server.server.server_state.connections)
                largest = max([largest, *(len(protocol.conn.trailing_data[0]) for protocol in connections)])
        except ConnectionError:
            pass
        finally:
            with suppress(OSError):  # it is closed already
                connection.shutdown(socket.SHUT_RDWR)
            sender.join()
    assert largest < 100_000


def test_a_few_requests_may_be_sent_ahead():
    with served() as server, connected(server) as connection:
        connection.sendall(b"GET /v1/pairs HTTP/1.1\r\nHost: localhost\r\n\r\n" * 99)
        connection.sendall(b"GET /v1/pairs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        received = b""
        while more := connection.recv(1 << 16):
            received += more
    assert received.count(b"HTTP/1.1 200") == 100


STRAY = {
    "no HTTP": [b"\x16\x03\x01 no HTTP\r\n\r\n"],
    "WebSocket": [b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade, close\r\nUpgrade: websocket\r\n\r\n"],
    "no chunk": [b"GET /v1/pairs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n\r\n"],
    "no chunk, after the answer": [
        b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"ZZ\r\n\r\n",
    ],
    "more after the last request": [
        b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
        b"Content-Length: 31\r\n\r\n" + b'{"pair": "de-en", "text": "ja"}' + b" " * 100_000
    ],
}


@pytest.mark.parametrize("name", STRAY)
def test_stray_requests_fill_no_log(caplog, name):
    with served() as server:
        for _ in range(20):
            with connected(server) as connection, suppress(ConnectionError):
                for part in STRAY[name]:
                    connection.sendall(part)
                    connection.recv(1 << 16)
                while connection.recv(1 << 16):
                    pass
        assert requests.get(f"{server.url}/v1/pairs", timeout=PATIENCE).ok
    assert len(caplog.records) <= 1
