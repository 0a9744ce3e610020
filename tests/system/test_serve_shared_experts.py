"""`make serve` with the smoke run and processes that share the experts of one model."""

import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.system.place import run
from tests.system.serving import started
from tests.system.test_backtranslation import sentences


def test_processes_that_share_experts_answer_alike_and_are_replaced_together(place, results):
    """One is killed, one stops without a word; the requests under way are answered, and so are later ones."""
    texts = sentences(12)
    with started(place, "runtime.processes=1") as server:
        server.wait_until_healthy()
        expected_answers = server.translated(texts)
    with started(place, "runtime.ep=2", "runtime.heartbeat=4") as sharing:
        sharing.wait_until_healthy()
        assert any("experts while decoding: cut over 2 processes" in line for line in sharing.output)
        answers = list(zip(sharing.translated(texts), expected_answers, strict=True))
        assert all(actual["score"] == pytest.approx(expected["score"], abs=1e-4) for actual, expected in answers)
        assert sum(actual["text"] == expected["text"] for actual, expected in answers) >= 11
        first = sharing.translated(texts[:1])[0]["text"]
        for number, reason in (
            (signal.SIGKILL, r"translate: process 1 of 2 was killed by SIGKILL"),
            (signal.SIGSTOP, r"translate: process 1 of 2 has been silent for \d+ s"),
        ):
            before = sorted(sharing.workers, key=lambda worker: worker.environ()["RANK"])
            assert len(before) == 2
            with ThreadPoolExecutor(1) as client:
                future = client.submit(sharing.ask, sentences(400), beam=8)
                time.sleep(0.5)
                before[1].send_signal(number)
                answer = future.result()
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
            assert re.match(reason, answer.json()["detail"])
            assert sharing.translated(texts[:1])[0]["text"] == first
            assert sharing.health().ok
            assert not [worker for worker in before if worker.is_running()]
        workers = sharing.workers
        sharing.process.send_signal(signal.SIGINT)
        assert sharing.process.wait(timeout=20) == 0
        assert not [worker for worker in workers if worker.is_running()]


def test_experts_that_cannot_be_shared_are_told_before_the_model_is_loaded(place, results):
    process = run(place.python("serve", "run=smoke", "runtime.processes=3", "runtime.ep=3"), timeout=60)
    assert process.returncode == 1
    assert process.stderr == (
        "error: runtime.ep=3 does not divide the 4 experts of run smoke, which so many processes would share; choose "
        "one of [2, 4], and a multiple of it for runtime.processes\n"
    )
