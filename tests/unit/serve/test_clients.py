"""Limits of one client: its connections and its requests."""

import socket
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
import requests
from requests.adapters import HTTPAdapter

from pipeline.serve.clients import OpenConnections, RequestRate, client_name
from pipeline.serve.config import load_serve
from tests.serving import served

OTHER = "127.0.0.2"  # an address of this machine that is another client's; macOS has it only once it is set up


class From(HTTPAdapter):
    """An adapter that sends requests from one address."""

    def __init__(self, address):
        self.address = address
        super().__init__()

    def init_poolmanager(self, *args, **options):
        super().init_poolmanager(*args, **options, source_address=(self.address, 0))


def session(address):
    client = requests.Session()
    client.mount("http://", From(address))
    return client


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:0:1:2:3:4:5", "2001:db8:0:1::/64"),
        ("2001:db8:0:1::", "2001:db8:0:1::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_a_client_is_an_address_or_a_network(address, name):
    assert client_name(address) == name


def test_a_client_may_send_a_second_s_worth_at_once_and_then_one_after_another():
    rate = RequestRate(4)
    assert [rate.wait("a", 100.0) for _ in range(4)] == [0] * 4
    assert rate.wait("a", 100.0) == pytest.approx(0.25, abs=1e-5)
    assert rate.wait("b", 100.0) == 0
    assert rate.wait("a", 100.26) == 0
    assert rate.wait("a", 100.26) > 0
    assert [rate.wait("a", 102.0) for _ in range(5)].count(0) == 4


def test_less_than_a_request_in_a_second():
    rate = RequestRate(0.1)
    assert rate.wait("a", 0.0) == 0
    assert rate.wait("a", 0.0) == pytest.approx(10, abs=1e-5)
    assert rate.wait("a", 10.01) == 0


def test_clients_are_forgotten():
    rate = RequestRate(10)
    for number in range(10_000):
        assert rate.wait(str(number), number / 100) == 0
        assert len(rate) <= 12  # requests of a tenth of a second


def test_connections_are_counted_for_all_and_for_each():
    limits = replace(load_serve(["run=none"]).limits, waiting=2, client_connections=3)
    opened = OpenConnections(limits)
    assert [opened.add("a") for _ in range(4)] == [True] * 3 + [False]
    assert [opened.add(name) for name in "bbbccccc"] == [True] * 3 + [True] * 2 + [False] * 3  # four times `waiting`
    opened.remove("a")
    assert opened.add("c")
    assert not opened.add("b")


def test_a_client_has_no_more_than_its_connections():
    with served(limits={"client_connections": 2}) as server:
        url = urlsplit(server.url)
        connections = [socket.create_connection((url.hostname, url.port), timeout=10) for _ in range(3)]
        assert connections[2].recv(1) == b""  # closed; an open one would time out
        with pytest.raises(requests.ConnectionError):
            requests.get(f"{server.url}/v1/pairs", timeout=10)
        with session(OTHER) as client:
            assert client.get(f"{server.url}/v1/pairs", timeout=10).ok
        for connection in connections:
            connection.close()


def test_a_client_that_asks_too_often_is_told_when_to_come_again():
    with served(limits={"client_rate": 0.1}) as server, session(OTHER) as client:
        forwarded = {"X-Forwarded-For": "192.0.2.1"}  # a header of the client does not matter
        answers = [requests.get(f"{server.url}/v1/pairs", headers=forwarded, timeout=10) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 429]
        assert answers[1].headers["Content-Type"] == "application/problem+json"
        assert answers[1].headers["Connection"] == "close"
        assert 1 <= int(answers[1].headers["Retry-After"]) <= 10
        assert answers[1].json()["detail"] == "one client may send 0.1 requests in a second"
        assert client.get(f"{server.url}/v1/pairs", timeout=10).ok
