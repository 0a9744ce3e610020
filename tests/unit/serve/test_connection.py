"""Connections that send too little, too many of them, and requests by another name than the server's."""

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
def held():
    """A server with little patience of its own, while uvicorn's would last an hour."""
    with served(limits={"seconds": 0.6, "waiting": 2}) as running:
        running.server.config.timeout_keep_alive = 3600
        yield running


def opened(server, sent=b""):
    where = urlsplit(server.url)
    connection = socket.create_connection((where.hostname, where.port), timeout=60)
    connection.sendall(sent)
    return connection


WHOLE = b"GET /v1/pairs HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(("before", "sent"), [(b"", b""), (b"", b"POST /v1/translate HTTP/1.1\r\nHo"), (WHOLE, b"G")])
def test_a_connection_without_a_whole_request_is_closed(held, before, sent):
    """It ends at all, and no earlier than it should: its clock starts after ours, by a tick of 16 ms at most."""
    began = time.monotonic()
    with opened(held, before) as connection:
        if before:
            while not answered(held):
                assert time.monotonic() - began < 60
                time.sleep(0.005)
            began = time.monotonic()
        connection.sendall(sent)
        while connection.recv(1 << 16):
            pass
        assert time.monotonic() - began > 0.6 - 0.016


def answered(server):
    """Whether the one connection has had a whole answer."""
    return [c.cycle is not None and c.cycle.response_complete for c in server.server.server_state.connections] == [True]


def test_a_request_that_trickles_in_is_not_waited_for(held):
    began = time.monotonic()
    with opened(held, b"GET / HTTP/1.1\r\nHost: ") as connection:
        connection.settimeout(0.05)
        while time.monotonic() - began < 60:
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
        others = [opened(patient) for _ in range(8)]  # four times `waiting`
        with opened(patient) as connection:
            assert connection.recv(1) == b""  # or it would be silent, and time out
        others[0].close()
        end = time.monotonic() + 20
        while len(patient.server.server_state.connections) == 8:
            assert time.monotonic() < end
            time.sleep(0.005)
        assert requests.get(f"{patient.url}/v1/pairs", timeout=10).ok
        for other in others:
            other.close()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((host, 200) for host in ("localhost", "LOCALHOST:8001", "127.0.0.1:1", "[::1]:8000", "demo.localhost")),
        *((host, 421) for host in ("evil.example", "localhost.evil.example:80", "192.0.2.1", "[evil")),
    ],
)
def test_of_this_machine_alone_no_site_can_pretend_to_be_it(server, host, status):
    headers = {"Host": host, "Origin": f"http://{host}"}
    answer = requests.post(
        f"{server.url}/v1/translate", json={"pair": "de-en", "text": "ja"}, headers=headers, timeout=10
    )
    assert answer.status_code == status
    if status == 421:
        assert (answer.json()["field"], answer.json()["value"]) == ("Host", host)


def test_open_to_others_it_has_any_name():
    with listen("0.0.0.0", 0) as listener:
        assert for_its_hosts(test_open_to_others_it_has_any_name, listener) is test_open_to_others_it_has_any_name
