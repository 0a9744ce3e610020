"""Expensive requests are refused before they delay other requests for long."""

import asyncio
import gc
import json
import socket
import time
from contextlib import suppress
from urllib.parse import urlsplit

import pytest
import requests

from tests.serving import served

LONGEST = 0.05  # processor seconds for one turn of the event loop


@pytest.fixture(scope="module")
def server():
    with served() as running:
        requests.get(f"{running.url}/v1/pairs", timeout=10)  # the first request imports modules
        yield running


@pytest.fixture
def turns(monkeypatch):
    """A list that gets the processor seconds of each turn of the event loop."""
    seconds = []
    run = asyncio.events.Handle._run

    def timed(handle):
        start = time.thread_time()
        try:
            run(handle)
        finally:
            seconds.append(time.thread_time() - start)

    gc.collect()
    gc.freeze()  # a server has fewer objects to collect than this process
    monkeypatch.setattr(asyncio.events.Handle, "_run", timed)
    yield seconds
    gc.unfreeze()


def longest(server, turns):
    """Return the longest turn so far. Another request comes first, so that the turn of the last answer has ended."""
    requests.get(f"{server.url}/v1/pairs", timeout=60)
    return max(turns)


def body(**fields):
    return json.dumps({"text": "ja", **fields}).encode()


BODIES = {
    "pair": body(pair="a-" * 4000),
    "source": body(source="a-" * 4000, target="en"),
    "target": body(source="de", target="a-" * 4000),
    "the longest pair": body(pair="a-" * 32),
    "lines that are numbers": b'{"pair": "de-en", "text": [' + b"1," * 480_000 + b"1]}",
    "prefixes that are numbers": b'{"pair": "de-en", "text": "ja", "prefix": [' + b"1," * 480_000 + b"1]}",
    "numbers for a number": b'{"pair": "de-en", "text": "ja", "beam": [' + b"1," * 480_000 + b"1]}",
    "lines that are lists": b'{"pair": "de-en", "text": [' + b"[]," * 320_000 + b"1]}",
    "as many lists as there may be commas": b'{"pair": "de-en", "text": [' + b"[]," * 10_000 + b"1]}",
    "names": b"{" + b",".join(b'"%d": 1' % number for number in range(80_000)) + b"}",
    "as many names as there may be commas": b"{" + b",".join(b'"%d": 1' % number for number in range(20_000)) + b"}",
    "a long name": body(**{"a" * 900_000: 1}),
    "a long value": body(nbest="a" * 900_000),
    "a long search": body(pair="de-en", search="a" * 900_000),
    "a long text": body(pair="de-en", text="a" * 900_000),
    "a long list in a line": b'{"pair": "de-en", "text": [[' + b"1," * 20_000 + b"1]]}",
    "nested lists": b'{"text": ' + b"[" * 20_000,
    "nested objects": b'{"text": ' * 20_000,
    "nested as deeply as is read": b'{"text": ' + b"[" * 900 + b"]" * 900 + b"}",
    "halves of characters": b'{"text": "' + rb"\ud83d" * 150_000 + b'"}',
    "digits": b'{"text": [' + b",".join([b"1" * 4300] * 200) + b"]}",
    "digits of a fraction": b'{"pair": "de-en", "text": "ja", "length_penalty": 0.' + b"1" * 900_000 + b"}",
    "blanks": b'{"text": ' + b" " * 900_000,
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_is_refused_at_once(server, turns, name):
    headers = {"Content-Type": "application/json"}
    answer = requests.post(f"{server.url}/v1/translate", BODIES[name], headers=headers, timeout=60)
    if name == "digits of a fraction":
        assert answer.status_code == 200  # this is a valid number
    else:
        assert answer.status_code in (400, 422), answer.text
        assert len(answer.content) < 2000
    assert longest(server, turns) < LONGEST


def test_the_largest_request_may_have_a_comma_for_each_character(server, turns):
    limits = server.service.limits
    texts = ["," * (limits.characters // limits.lines)] * limits.lines
    request = {"pair": "de-en", "text": texts, "beam": limits.beam, "n_best": limits.beam}
    answer = requests.post(f"{server.url}/v1/translate", json=request, timeout=60)
    assert [translation["text"] for translation in answer.json()["translations"]] == texts
    assert longest(server, turns) < LONGEST


def sent(server, data):
    """Send bytes, and return the answer until the server closes the connection."""
    url = urlsplit(server.url)
    answer = b""
    with socket.create_connection((url.hostname, url.port), timeout=60) as connection:
        connection.sendall(data)
        while received := connection.recv(1 << 16):
            answer += received
    return answer


def test_chunks_of_one_byte(server, turns):
    head = b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
    head += b"Transfer-Encoding: chunked\r\n\r\n"
    assert b"is not JSON" in sent(server, head + b"1\r\n \r\n" * 4000 + b"0\r\n\r\n")
    longest(server, turns)
    seconds_before = sum(turns)
    with suppress(ConnectionError):
        assert sent(server, head + b"1\r\n \r\n" * 160_000 + b"0\r\n\r\n") == b""
    assert longest(server, turns) < LONGEST
    assert sum(turns) - seconds_before < 0.5  # for any number of chunks


@pytest.mark.parametrize(
    "head",
    [
        b"GET /v1/pairs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + b"a:b\r\n" * 3000,
        b"GET /v1/pairs HTTP/1.1\r\nConnection: close\r\nHost: " + b"a." * 7000 + b"\r\n",
        b"GET /" + b"a/" * 7000 + b" HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\n",
    ],
    ids=["headers", "host", "path"],
)
def test_a_long_head(server, turns, head):
    answer = sent(server, head + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 ")
    assert len(answer) < 4000
    assert longest(server, turns) < LONGEST
