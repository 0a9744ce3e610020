"""Connections that send too little, too many connections, and requests for another host."""

import socket
import time
from urllib.parse import urlsplit

import pytest
import requests

from pipeline.serve.hosts import for_its_hosts
from pipeline.serve.server import listen
from tests.serving import served


@pytest.fixture(scope="module")
def server():
    with served() as running:
        yield running


@pytest.fixture
def impatient():
    """A server that soon closes connections itself, while uvicorn would wait for an hour."""
    with served(limits={"seconds": 0.6, "waiting": 2}) as running:
        running.server.config.timeout_keep_alive = 3600
        yield running


def opened(server, sent=b""):
    url = urlsplit(server.url)
    connection = socket.create_connection((url.hostname, url.port), timeout=60)
    connection.sendall(sent)
    return connection


WHOLE = b"GET /v1/pairs HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(("before", "sent"), [(b"", b""), (b"", b"POST /v1/translate HTTP/1.1\r\nHo"), (WHOLE, b"G")])
def test_a_connection_without_a_whole_request_is_closed(impatient, before, sent):
    """It ends, but not too early. The server's clock may tick up to 16 ms later than this one."""
    start = time.monotonic()
    with opened(impatient, before) as connection:
        if before:
            while not answered(impatient):
                assert time.monotonic() - start < 60
                time.sleep(0.005)
            start = time.monotonic()
        connection.sendall(sent)
        while connection.recv(1 << 16):
            pass
        assert time.monotonic() - start > 0.6 - 0.016


def answered(server):
    """Tell if the only connection has had a whole answer."""
    return [c.cycle is not None and c.cycle.response_complete for c in server.server.server_state.connections] == [True]


def test_a_request_that_trickles_in_is_not_waited_for(impatient):
    start = time.monotonic()
    with opened(impatient, b"GET / HTTP/1.1\r\nHost: ") as connection:
        connection.settimeout(0.05)
        while time.monotonic() - start < 60:
            try:
                connection.sendall(b"a")
                received = connection.recv(1)
            except TimeoutError:
                continue
            except ConnectionError:
                received = b""
            break
    assert received == b""


def test_there_are_only_so_many_connections():
    with served(limits={"seconds": 60, "waiting": 2}) as patient:
        connections = [opened(patient) for _ in range(8)]  # four times `waiting`
        with opened(patient) as refused:
            assert refused.recv(1) == b""  # closed; an open one would time out
        connections[0].close()
        end = time.monotonic() + 20
        while len(patient.server.server_state.connections) == 8:
            assert time.monotonic() < end
            time.sleep(0.005)
        assert requests.get(f"{patient.url}/v1/pairs", timeout=10).ok
        for connection in connections:
            connection.close()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((host, 200) for host in ("localhost", "LOCALHOST:8001", "127.0.0.1:1", "[::1]:8000", "demo.localhost")),
        *((host, 421) for host in ("evil.example", "localhost.evil.example:80", "192.0.2.1", "[evil")),
    ],
)
def test_a_server_for_this_machine_refuses_other_host_names(server, host, status):
    headers = {"Host": host, "Origin": f"http://{host}"}
    answer = requests.post(
        f"{server.url}/v1/translate", json={"pair": "de-en", "text": "ja"}, headers=headers, timeout=10
    )
    assert answer.status_code == status
    if status == 421:
        assert (answer.json()["field"], answer.json()["value"]) == ("Host", host)


def test_a_server_for_all_machines_takes_any_host_name():
    app = object()
    with listen("0.0.0.0", 0) as listener:
        assert for_its_hosts(app, listener) is app
