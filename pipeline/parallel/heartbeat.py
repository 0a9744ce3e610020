"""Noticing that a process of the job has fallen silent, though every other hangs in a collective that waits for it.

gloo's and NCCL's time-outs are long and name nobody. So a thread of each process counts up in the job's store, six
times in the time that is the limit. Process 0 reads all counters, in one message, and everybody else reads its counter
and its verdict: two small messages per process and beat, however many there are, and a whole host that is cut off is
named at once, which a ring of neighbours could not. A second thread watches that the store itself answers.

Time is counted only while the watcher runs too: a job that was suspended as a whole goes on when it is continued.
"""

import errno
import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta

from pipeline.parallel.rendezvous import World

BEATS = 6  # in the limit
VERDICT = "verdict"
LEFT = -(1 << 60)  # added to the counter of a process that ends
REMEDY = "the same command goes on from the last checkpoint"


class Heartbeat:
    """Two threads that end this process, after `report(why)`, when another one is silent for `limit` seconds.

    What they end it for is a verdict that all processes read, as is the error of a process that failed by itself.
    """

    def __init__(self, world: World, *, limit: int, report: Callable[[str], None]) -> None:
        self._world, self._limit, self._report = world, limit, report
        self._interval = limit / BEATS
        self._store = world.store.clone()  # type: ignore[attr-defined]  # a connection of its own: the other may be waiting
        self._store.set_timeout(timedelta(seconds=limit))
        self._watched = [rank for rank in (range(world.size) if world.rank == 0 else [0]) if rank != world.rank]
        self._keys = [f"beat/{rank}" for rank in range(world.size)]
        self._seen = dict.fromkeys(self._watched, b"")
        self._silent = dict.fromkeys(self._watched, 0.0)  # seconds
        self._answers = 0  # of the store
        self._looked = time.monotonic()
        self._leaving = threading.Event()
        self._verdict = ""
        self._hurried = False
        self._ending = threading.Lock()
        if world.rank == 0:
            self._store.set(VERDICT, "")
            self._store.multi_set(self._keys, ["0"] * world.size)
            self._store.set("watch", "begun")
        self._store.wait(["watch"])
        self._beating = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._beating.start()
        threading.Thread(target=self._guard, name="heartbeat guard", daemon=True).start()

    def leave(self, *, finished: bool, failure: str = "") -> None:
        """Say that this process ends, and why if it failed. Process 0 waits for the others if it has finished its work;
        if not, they may be waiting for it in a collective."""
        self._hurried = not finished
        if failure:
            self._verdict = f"{self._world.name([self._world.rank])} failed: {failure}"
        self._leaving.set()
        self._beating.join(None if finished else 2 * self._interval)

    def await_verdict(self, stop: Callable[[], bool]) -> None:
        """For a process that lost a connection: wait for the threads to find who is gone, and to end this process.

        Returns if they find nobody, or when asked to stop; at once where one launcher sees all and knows by itself."""
        deadline = time.monotonic() + self._limit + 3 * self._interval
        while self._world.address and time.monotonic() < deadline and not stop():
            time.sleep(0.1)

    def _beat(self) -> None:
        try:
            while not self._leaving.wait(self._interval):
                if self._count_up():
                    self._look()
            self._farewell()
        except RuntimeError as error:  # of the store: a time-out, or process 0 is gone and its connection with it
            if not self._hurried:
                self._end(f"{self._keeper()} is lost ({str(error).splitlines()[0]}); {REMEDY}", tell=False)

    def _count_up(self) -> bool:
        """Send one beat to the store; tells whether the store took it.

        A store in a file on a full disk takes nobody's beats, so a missing beat proves nothing: all count as alive.
        """
        try:
            self._store.add(self._keys[self._world.rank], 1)
        except RuntimeError as error:
            if os.strerror(errno.ENOSPC) not in str(error):
                raise
            self._silent = dict.fromkeys(self._watched, 0.0)
            self._answers += 1
            return False
        return True

    def _look(self) -> None:
        """Read what is to be read; end this process if someone is silent, or a verdict is there."""
        verdict, *beats = self._store.multi_get([VERDICT, *(self._keys[rank] for rank in self._watched)])
        now = time.monotonic()
        passed, self._looked = min(now - self._looked, 2 * self._interval), now
        if verdict:
            self._end(verdict.decode())
        for rank, beat in zip(self._watched, beats, strict=True):
            alive = has_left(beat) or beat != self._seen.get(rank)
            self._silent[rank] = 0.0 if alive else self._silent[rank] + passed
            self._seen[rank] = beat
        self._answers += 1
        silent = [rank for rank, seconds in self._silent.items() if seconds >= self._limit]
        if silent:
            longest = max(self._silent.values())
            plural = "have" if silent[1:] else "has"
            self._end(
                f"{self._world.name(silent)} {plural} been silent for {longest:.0f} s (stopped, swapped out, or the "
                f"host is cut off); {REMEDY}"
            )

    def _guard(self) -> None:
        """End this process when the store does not answer."""
        answers, silence, before = -1, 0.0, time.monotonic()
        while True:
            time.sleep(self._interval)
            now = time.monotonic()
            silence = silence + min(now - before, 2 * self._interval) if self._answers == answers else 0.0
            answers, before = self._answers, now
            if silence >= self._limit + self._interval and self._beating.is_alive():
                why = f"{self._keeper()} has not answered for {silence:.0f} s (stopped, or cut off); {REMEDY}"
                self._end(why, tell=False)

    def _keeper(self) -> str:
        if not self._world.address:
            return "the file in which the job's processes meet"
        return f"{self._world.name([0])}, which serves the job's store at {self._world.address},"

    def _farewell(self) -> None:
        """Tell the others. Process 0 then waits for those that live: it watches them, and may serve their store."""
        if self._verdict:
            self._store.compare_set(VERDICT, "", self._verdict)
        self._store.add(self._keys[self._world.rank], LEFT)  # the answer says that it has arrived
        if self._world.rank != 0 or (self._hurried and not self._world.address):
            return
        deadline = time.monotonic() + 2 * self._interval
        while not all(map(has_left, self._seen.values())):
            if self._hurried:  # they read the verdict at their next beat
                living = [rank for rank, seconds in self._silent.items() if seconds < self._limit]
                if time.monotonic() > deadline or all(has_left(self._seen[rank]) for rank in living):
                    return
                beats = self._store.multi_get([self._keys[rank] for rank in living])
                self._seen.update(zip(living, beats, strict=True))
            else:
                self._look()
            time.sleep(min(0.1, self._interval))

    def _end(self, why: str, *, tell: bool = True) -> None:
        """Report, tell the others where the store answers, and end the process: its main thread cannot."""
        if not self._ending.acquire(blocking=False):
            threading.Event().wait()  # the other thread ends us
        self._report(why)
        if tell:
            self._verdict, self._hurried = why, True
            alarm = threading.Timer(2 * self._interval, os._exit, (1,))  # the store may cease to answer now
            alarm.daemon = True
            alarm.start()
            try:
                self._farewell()
            finally:
                os._exit(1)  # whatever the store said: the reason is reported
        os._exit(1)


def has_left(beat: bytes) -> bool:
    return beat.startswith(b"-")


def lost_connection(error: BaseException) -> bool:
    """Whether a collective failed because another process, or the way to it, is gone."""
    return isinstance(error, RuntimeError) and any(
        sign in str(error) for sign in ("gloo", "NCCL", "onnection closed by peer", "onnection reset by peer")
    )
