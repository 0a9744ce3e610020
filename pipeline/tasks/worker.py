"""`python -m pipeline.tasks.worker <descriptor>`: makes one call after another until the other end of the socket is
closed, or the process that holds it is gone; then it ends at once, in the middle of a call too."""

import os
import signal
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import SimpleQueue

from pipeline.tasks.call import perform


def serve(descriptor: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):  # sent to all processes of a Slurm job, say
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
