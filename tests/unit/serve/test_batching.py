import asyncio
import random
from dataclasses import replace

import pytest

from pipeline.decode.text.line import Line
from pipeline.serve.batching import Batcher, Full
from pipeline.serve.config import BatchingConfig
from pipeline.tasks.call import TaskFailed
from tests.serving import DECODE, Capitals

GREEDY = replace(DECODE, beam=1)


def lines(*texts):
    return [Line(text=text, target="en", number=number) for number, text in enumerate(texts)]


class Waiting:
    """A Batcher with requests. Its pool has one worker or more."""

    def __init__(self, *, workers=1, waiting=100, **settings):
        self.pool = Capitals(workers)
        config = BatchingConfig(**{"wait_ms": 5, "lines": 8, "characters": 1000, **settings})
        self.batcher = Batcher(self.pool, config, workers=workers, waiting=waiting)

    def ask(self, *texts, decode=DECODE):
        return asyncio.ensure_future(self.batcher.translate(lines(*texts), decode))

    async def running(self, *texts, decode=DECODE):
        """Return a request whose call the pool keeps until `go`."""
        self.pool.go.clear()
        calls = len(self.pool.calls)
        task = self.ask(*texts, decode=decode)
        while len(self.pool.calls) == calls:
            await asyncio.sleep(0.001)
        return task

    @property
    def texts(self):
        return [texts for texts, _ in self.pool.calls]


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose clock can be put forward. ahead: seconds."""

    ahead = 0.0

    def time(self):
        return super().time() + self.ahead


async def outcome(task):
    return [translated.text for translated in await task]


def test_requests_of_the_same_moment_are_one_call_and_each_gets_its_own():
    async def work():
        waiting = Waiting()
        tasks = [waiting.ask("a", "b"), waiting.ask("c"), waiting.ask("d", "e")]
        assert [await outcome(task) for task in tasks] == [["A", "B"], ["C"], ["D", "E"]]
        assert [sorted(call) for call in waiting.texts] == [["a", "b", "c", "d", "e"]]

    asyncio.run(work())


def test_a_request_alone_waits_only_so_long():
    """It waits for an hour. The steps are so large that a slow machine cannot change the result."""

    async def work():
        loop = asyncio.get_running_loop()
        waiting = Waiting(wait_ms=3_600_000)
        task = waiting.ask("a")
        for minutes, calls in ((0, []), (40, []), (61, [["a"]])):
            loop.ahead = 60.0 * minutes
            for _ in range(3):  # turns for the request, the timer, and the call of the pool
                await asyncio.sleep(0)
            assert waiting.texts == calls
        assert await outcome(task) == ["A"]

    with asyncio.Runner(loop_factory=Clock) as runner:
        runner.run(work())


def test_a_small_request_is_not_behind_a_large_one():
    async def work():
        waiting = Waiting()
        large = await waiting.running(*(f"large {number}" for number in range(100)))
        small = waiting.ask("small")
        await asyncio.sleep(0.02)
        waiting.pool.go.set()
        assert await outcome(small) == ["SMALL"]
        assert "small" in waiting.texts[1]
        assert not large.done()
        assert await outcome(large) == [f"LARGE {number}" for number in range(100)]

    asyncio.run(work())


def test_a_call_has_at_most_so_many_lines_and_characters_and_at_least_a_line():
    async def work():
        waiting = Waiting(lines=3, characters=10)
        texts = ["aaaa", "bbbb", "cccc", "x" * 50, "d", "e", "f", "g"]
        assert await outcome(waiting.ask(*texts)) == [text.upper() for text in texts]
        assert waiting.texts == [["aaaa", "bbbb"], ["cccc"], ["x" * 50], ["d", "e", "f"], ["g"]]

    asyncio.run(work())


def test_settings_are_not_mixed_and_take_turns():
    async def work():
        waiting = Waiting(lines=2)
        first = waiting.ask(*"abcd")
        second = waiting.ask(*"efgh", decode=GREEDY)
        assert await outcome(first) + await outcome(second) == list("ABCDEFGH")
        assert waiting.pool.calls == [
            (["a", "b"], DECODE),
            (["e", "f"], GREEDY),
            (["c", "d"], DECODE),
            (["g", "h"], GREEDY),
        ]

    asyncio.run(work())


def test_workers_that_are_free_share_what_waits():
    async def work():
        waiting = Waiting(workers=2)
        await asyncio.gather(*(waiting.ask(text) for text in "abcdef"))
        assert sorted(map(len, waiting.texts)) == [3, 3]

    asyncio.run(work())


def test_a_request_that_is_given_up_leaves_the_queue():
    async def work():
        waiting = Waiting(lines=1)
        running = await waiting.running("a")
        given_up, kept = waiting.ask(*"bcd"), waiting.ask("e")
        await asyncio.sleep(0.02)
        given_up.cancel()
        await asyncio.sleep(0)
        waiting.pool.go.set()
        assert await outcome(running) + await outcome(kept) == ["A", "E"]
        assert waiting.texts == [["a"], ["e"]]
        assert waiting.batcher.under_way == 0

    asyncio.run(work())


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.001)


def test_a_call_that_nobody_waits_for_ends():
    async def work():
        waiting = Waiting()
        long = await waiting.running("x" * 5000)
        small = waiting.ask("small")
        await asyncio.sleep(0.02)
        assert len(waiting.texts) == 1
        long.cancel()
        await until(lambda: len(waiting.texts) == 2)  # the pool is still blocked, so the first call was given up
        waiting.pool.go.set()
        assert await outcome(small) == ["SMALL"]
        assert not waiting.batcher.broken

    asyncio.run(work())


def test_a_call_goes_on_while_one_of_its_requests_waits():
    async def work():
        waiting = Waiting()
        waiting.pool.go.clear()
        cancelled, kept = waiting.ask("a"), waiting.ask("b")
        await until(lambda: waiting.texts)
        cancelled.cancel()
        await asyncio.sleep(0.03)
        waiting.pool.go.set()
        assert await outcome(kept) == ["B"]
        assert waiting.texts == [["a", "b"]]

    asyncio.run(work())


def test_one_of_several_workers_is_free_of_long_lines():
    async def work():
        waiting = Waiting(workers=2, characters=10)
        waiting.pool.go.clear()
        first, second = waiting.ask("x" * 11), waiting.ask("y" * 11, "b")
        await until(lambda: waiting.texts)
        await asyncio.sleep(0.02)
        small = waiting.ask("a")
        await until(lambda: len(waiting.texts) == 2)
        waiting.pool.go.set()
        assert await asyncio.gather(*map(outcome, (first, second, small))) == [["X" * 11], ["Y" * 11, "B"], ["A"]]
        assert waiting.texts == [["x" * 11], ["a"], ["y" * 11], ["b"]]

    asyncio.run(work())


def test_no_more_than_so_many_requests_wait():
    async def work():
        waiting = Waiting(waiting=2)
        running = await waiting.running("a")
        queued = waiting.ask("b")
        await asyncio.sleep(0)
        with pytest.raises(Full):
            await waiting.ask("c")
        waiting.pool.go.set()
        assert await outcome(running) + await outcome(queued) + await outcome(waiting.ask("d")) == ["A", "B", "D"]

    asyncio.run(work())


def test_a_lost_call_fails_its_requests_alone():
    async def work():
        waiting = Waiting(lines=2)
        with pytest.raises(TaskFailed, match="SIGKILL"):
            await waiting.ask("lost", "b", "c", "d")
        assert waiting.batcher.broken
        bad, later = waiting.ask("lost", "b", "c", "d"), waiting.ask(*"efgh", decode=GREEDY)
        with pytest.raises(TaskFailed, match="SIGKILL"):
            await bad
        assert await outcome(later) == list("EFGH")
        assert not waiting.batcher.broken
        assert ["c", "d"] not in waiting.texts

    asyncio.run(work())


def test_everyone_gets_their_own_whatever_comes_and_goes():
    async def work():
        draw = random.Random(0)
        waiting = Waiting(workers=3, lines=5, characters=40, wait_ms=1, waiting=1000)
        tasks = []
        for number in range(300):
            texts = [f"{number} {line} " + "x" * draw.randrange(20) for line in range(draw.randrange(1, 12))]
            tasks.append((texts, waiting.ask(*texts, decode=draw.choice([DECODE, GREEDY]))))
            if draw.random() < 0.3:
                await asyncio.sleep(draw.random() / 500)
            if draw.random() < 0.2:
                draw.choice(tasks)[1].cancel()
        results = await asyncio.gather(*(task for _, task in tasks), return_exceptions=True)
        finished = [
            (texts, result)
            for (texts, _), result in zip(tasks, results, strict=True)
            if not isinstance(result, asyncio.CancelledError)
        ]
        assert 200 < len(finished) < 300
        for texts, translations in finished:
            assert [translated.text for translated in translations] == [text.upper() for text in texts]
        assert all(len(call) <= 5 for call in waiting.texts)

    asyncio.run(work())
