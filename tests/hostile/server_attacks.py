"""Clients that mean harm, all at once: `python -m tests.hostile.server_attacks PORT SECONDS`.

Each attack comes from an address of its own on this machine, again and again, by several connections at a time. Prints
how often each was begun, as JSON.
"""

import asyncio
import json
import os
import socket
import sys
import time
from collections import Counter
from contextlib import suppress

REACTION = 10  # seconds that a connection is held, or an answer is waited for
GET = b"GET /v1/pairs HTTP/1.1\r\nHost: localhost\r\n\r\n"
LARGE = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
LINE = b'{"pair": "tr-en", "text": "961 Dizi veya y\xc3\xb6ntem bulunamad\xc4\xb1"}'
POST = b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKS = POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 100_000


def post(body):
    return POST + b"Content-Length: %d\r\n\r\n" % len(body) + body


def huge(start, item, end):
    """A body of a little less than the megabyte that a server takes."""
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
    """An attack that sends these one after another and reads what is answered, while the server lets it."""

    async def attack(reader, writer):
        for each in data:
            writer.write(each)
            await writer.drain()
            async with asyncio.timeout(REACTION):
                await reader.read(1 << 16)

    return attack


ATTACKS = {  # name: connections at a time, and what is done with one
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


async def again_and_again(name, attack, address, port, end, begun):
    while (left := end - time.monotonic()) > 0:
        begun[name] += 1
        with suppress(OSError, TimeoutError):  # what a server does about it
            async with asyncio.timeout(left):
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
    begun = Counter()
    end = time.monotonic() + seconds
    async with asyncio.TaskGroup() as group:
        for number, (name, (width, attack)) in enumerate(ATTACKS.items(), start=2):
            for _ in range(width):
                group.create_task(again_and_again(name, attack, f"127.0.0.{number}", port, end, begun))
    return begun


if __name__ == "__main__":
    os.nice(10)  # attackers are elsewhere: their own work is not the server's
    print(json.dumps(asyncio.run(attack_all(int(sys.argv[1]), float(sys.argv[2])))))
