"""Attacks on a server, all at the same time: `python -m tests.hostile.server_attacks PORT SECONDS`.

Each attack comes from its own address of this machine, repeatedly and by several connections at a time. The number of
attempts of each attack is printed as JSON.
"""

import asyncio
import json
import os
import socket
import sys
import time
from collections import Counter
from contextlib import suppress

REACTION = 10  # seconds for which a connection is kept, or an answer is awaited
GET = b"GET /v1/pairs HTTP/1.1\r\nHost: localhost\r\n\r\n"
LARGE = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
LINE = b'{"pair": "tr-en", "text": "961 Dizi veya y\xc3\xb6ntem bulunamad\xc4\xb1"}'
POST = b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKS = POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 100_000


def post(body):
    return POST + b"Content-Length: %d\r\n\r\n" % len(body) + body


def huge(start, item, end):
    """Return a body of a little less than a megabyte, which is the limit of a server."""
    return post(start + item * ((999_000 - len(start) - len(end)) // len(item)) + end)


async def trickle(writer, start, byte):
    writer.write(start)
    for _ in range(2 * REACTION):
        writer.write(byte)
        await writer.drain()
        await asyncio.sleep(0.5)


async def slow_head(reader, writer):
    await trickle(writer, b"GET / HTTP/1.1\r\nHost: ", b"a")


async def slow_body(reader, writer):
    await trickle(writer, post(b" " * 1000)[:-999], b" ")


async def slow_reader(reader, writer):
    writer.transport.pause_reading()
    writer.write(LARGE * 1000)
    await asyncio.sleep(REACTION)


async def come_and_go(reader, writer):
    pass


def answered(*data):
    """Return an attack that sends these requests one after another and reads the answers."""

    async def attack(reader, writer):
        for request in data:
            writer.write(request)
            await writer.drain()
            async with asyncio.timeout(REACTION):
                await reader.read(1 << 16)

    return attack


ATTACKS = {  # name: connections at a time, and the attack by one connection
    "slow heads": (64, slow_head),
    "slow bodies": (64, slow_body),
    "slow readers": (64, slow_reader),
    "connections": (4, come_and_go),
    "requests": (4, answered(*[GET] * 100)),
    "requests ahead": (2, answered(GET * 5000)),
    "translations": (8, answered(*[post(LINE)] * 100)),
    "no HTTP": (2, answered(b"\x16\x03\x01\r\n\r\n")),
    "large fields": (2, answered(huge(b'{"text": "a", "pair": "', b"a-", b'"}'))),
    "large names": (2, answered(huge(b'{"text": "a", "', b"a-", b'": 1}'))),
    "many values": (2, answered(huge(b'{"pair": "tr-en", "text": [', b"1,", b"1]}"))),
    "nested": (2, answered(huge(b'{"text": ', b"[", b""), post(b'{"text": ' * 20_000))),
    "chunks": (2, answered(CHUNKS)),
}


async def repeat(name, attack, address, port, end, attempts):
    while (seconds := end - time.monotonic()) > 0:
        attempts[name] += 1
        with suppress(OSError, TimeoutError):  # the server ends the connection
            async with asyncio.timeout(seconds):
                connection = socket.socket()
                connection.setblocking(False)
                if attack is slow_reader:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.bind((address, 0))
                await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
                reader, writer = await asyncio.open_connection(sock=connection)
                try:
                    await attack(reader, writer)
                finally:
                    writer.transport.abort()
        await asyncio.sleep(0.01)


async def attack_all(port, seconds):
    attempts = Counter()
    end = time.monotonic() + seconds
    async with asyncio.TaskGroup() as group:
        for number, (name, (width, attack)) in enumerate(ATTACKS.items(), start=2):
            for _ in range(width):
                group.create_task(repeat(name, attack, f"127.0.0.{number}", port, end, attempts))
    return attempts


if __name__ == "__main__":
    os.nice(10)  # real attackers run on other machines and take no processor time of the server
    print(json.dumps(asyncio.run(attack_all(int(sys.argv[1]), float(sys.argv[2])))))
