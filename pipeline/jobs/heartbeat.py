"""Notice that a process of the job is silent, while all other processes hang in a collective that waits for it.

The time-outs of gloo and NCCL are long and name no process. So a thread of each process increases a counter in the
job's store, six times within the limit. Process 0 reads all counters in one message. All other processes read its
counter and its verdict. This costs two small messages per process and beat for any number of processes. It also names
all processes of a lost host at once, which a ring of neighbours could not. A second thread watches the store itself.

Time counts only while the watching process runs. So a job that was suspended as a whole continues afterwards.
"""

import errno
import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta

from pipeline.jobs.rendezvous import World

BEATS = 6  # per limit
VERDICT = "verdict"
LEFT = -(1 << 60)  # added to the counter of a process that ends
REMEDY = "the same command goes on from the last checkpoint"


class Heartbeat:
    """Two threads that call `report` and end this process when another one has been silent for `limit` seconds.

    All processes read the same verdict: the silent process, or the error of a process that failed by itself.
    remedy: end of the reported message.
    """

    def __init__(self, world: World, *, limit: int, report: Callable[[str], None], remedy: str = REMEDY) -> None:
        self._world, self._limit, self._report, self._remedy = world, limit, report, remedy
        self._interval = limit / BEATS
        self._store = world.store.clone()  # type: ignore[attr-defined]  # a new connection, because the other one may be busy
        self._store.set_timeout(timedelta(seconds=limit))
        self._watched = [rank for rank in (range(world.size) if world.rank == 0 else [0]) if rank != world.rank]
        self._keys = [f"beat/{rank}" for rank in range(world.size)]
        self._seen = dict.fromkeys(self._watched, b"")
        self._silent = dict.fromkeys(self._watched, 0.0)  # seconds
        self._answers = 0  # times that the store has answered
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
        """Announce the end of this process.

        finished: the work is done. Process 0 then waits for the others. If not, they may wait for it in a collective.
        failure: the reason of a failed process.
        """
        self._hurried = not finished
        if failure:
            self._verdict = f"{self._world.name([self._world.rank])} failed: {failure}"
        self._leaving.set()
        self._beating.join(None if finished else 2 * self._interval)

    def await_verdict(self, stop: Callable[[], bool]) -> None:
        """Wait, after a lost connection, until the threads find the lost process and end this one.

        Return if they find none, or if `stop` is true. Return at once on one machine, where the launcher sees all.
        """
        deadline = time.monotonic() + self._limit + 3 * self._interval
        while self._world.address and time.monotonic() < deadline and not stop():
            time.sleep(0.1)

    def _beat(self) -> None:
        try:
            while not self._leaving.wait(self._interval):
                if self._count_up():
                    self._look()
            self._farewell()
        except RuntimeError as error:  # the store timed out, or process 0 is gone
            if not self._hurried:
                self._end(f"{self._keeper()} is lost ({str(error).splitlines()[0]}); {self._remedy}", tell=False)

    def _count_up(self) -> bool:
        """Send one beat to the store. Return true if the store took it.

        A store in a file on a full disk takes no beats at all. Then all processes count as alive.
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
        """Read the verdict and the counters. End this process if a verdict exists or a process is silent."""
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
                f"host is cut off); {self._remedy}"
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
                why = f"{self._keeper()} has not answered for {silence:.0f} s (stopped, or cut off); {self._remedy}"
                self._end(why, tell=False)

    def _keeper(self) -> str:
        if not self._world.address:
            return "the file in which the job's processes meet"
        return f"{self._world.name([0])}, which serves the job's store at {self._world.address},"

    def _farewell(self) -> None:
        """Tell the other processes. Process 0 then waits for them: it watches them and may serve their store."""
        if self._verdict:
            self._store.compare_set(VERDICT, "", self._verdict)
        self._store.add(self._keys[self._world.rank], LEFT)  # returns when the message has arrived
        if self._world.rank != 0 or (self._hurried and not self._world.address):
            return
        deadline = time.monotonic() + 2 * self._interval
        while not all(map(has_left, self._seen.values())):
            if self._hurried:  # the other processes read the verdict at their next beat
                living = [rank for rank, seconds in self._silent.items() if seconds < self._limit]
                if time.monotonic() > deadline or all(has_left(self._seen[rank]) for rank in living):
                    return
                beats = self._store.multi_get([self._keys[rank] for rank in living])
                self._seen.update(zip(living, beats, strict=True))
            else:
                self._look()
            time.sleep(min(0.1, self._interval))

    def _end(self, why: str, *, tell: bool = True) -> None:
        """Report the reason, tell the other processes if the store answers, and end this process.

        The main thread cannot do so, because it hangs in a collective.
        """
        if not self._ending.acquire(blocking=False):
            threading.Event().wait()  # the other thread ends the process
        self._report(why)
        if tell:
            self._verdict, self._hurried = why, True
            alarm = threading.Timer(2 * self._interval, os._exit, (1,))  # the store may stop answering now
            alarm.daemon = True
            alarm.start()
            try:
                self._farewell()
            finally:
                os._exit(1)  # also if the store failed, because the reason is reported
        os._exit(1)


def has_left(beat: bytes) -> bool:
    """Return true if the counter is that of a process that has ended."""
    return beat.startswith(b"-")


def lost_connection(error: BaseException) -> bool:
    """Return true if a collective failed because the connection to another process is lost."""
    return isinstance(error, RuntimeError) and any(
        sign in str(error) for sign in ("gloo", "NCCL", "onnection closed by peer", "onnection reset by peer")
    )
