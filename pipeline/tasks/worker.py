"""`python -m pipeline.tasks.worker <descriptor>`: a process that makes one call after another.

It ends at once, even in a call, when the other end of the socket is closed, or its process has ended.
"""

import os
import signal
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import SimpleQueue

from pipeline.tasks.call import perform


def serve(descriptor: int) -> None:
    """Make the calls that arrive on a socket, and send their outcomes back."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):  # Slurm sends them to all processes of a job
        signal.signal(number, signal.SIG_IGN)
    connection: Connection = Connection(descriptor)
    calls: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_listen, args=(connection, calls), daemon=True).start()
    with suppress(ConnectionError):
        while True:
            connection.send_bytes(perform(calls.get()))


def _listen(connection: Connection, calls: "SimpleQueue[bytes]") -> None:
    try:
        while True:
            calls.put(connection.recv_bytes())
    except (EOFError, ConnectionError):
        os._exit(0)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
