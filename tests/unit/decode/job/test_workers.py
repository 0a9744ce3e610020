"""Real processes that hold a model: they translate as a translator here, report errors, and are replaced if lost."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace

import psutil
import pytest

from pipeline.config import load_config
from pipeline.decode.job.replica import GivenUp
from pipeline.decode.job.workers import TranslatorPool
from pipeline.decode.text.line import Line
from pipeline.decode.text.translator import Translator
from pipeline.model.moe.drops import DropCount
from pipeline.tasks import TaskFailed
from tests.conftest import ROOT
from tests.unit.decode.conftest import DECODE
from tests.unit.decode.text.test_translator import LONG, TURKISH, lines
from tests.unit.tasks.test_tasks import gone


def workers():
    return [child for child in psutil.Process().children() if "pipeline.tasks.worker" in child.cmdline()]


def wait_until_running(futures):
    deadline = time.monotonic() + 20
    while not all(future.running() for future in futures):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_translations_are_those_of_a_translator_here(pool, model, vocabulary):
    batch = lines(*TURKISH[:6], "", LONG)
    outcomes = dict(Translator(model, vocabulary, DECODE, max_source_tokens=24).translate(batch))
    forward, backward = pool.submit(batch), pool.submit(batch[::-1])
    for index, line in enumerate(batch):
        expected = outcomes[index]
        for actual in (forward.result()[index], backward.result()[len(batch) - 1 - index]):
            assert (actual.text, actual.skipped, actual.cut) == (expected.text, expected.skipped, expected.cut), line
            assert actual.score == pytest.approx(expected.score, abs=1e-4)


def test_a_call_may_decode_otherwise_but_not_with_another_model(pool, model, vocabulary):
    greedy = replace(DECODE, beam=1, max_length_extra=1)
    (expected,) = dict(Translator(model, vocabulary, greedy, max_source_tokens=24).translate(lines(LONG))).values()
    assert pool.submit(lines(LONG), greedy).result()[0].text == expected.text
    assert pool.submit(lines(LONG)).result()[0].text != expected.text
    with pytest.raises(ValueError, match=r"decode.precision=fp64: the model is loaded with fp32; start again"):
        pool.submit(lines("a"), replace(DECODE, precision="fp64"))
    with pytest.raises(ValueError, match=r"decode.ensemble=\('b',\): the model is loaded with \(\); start again"):
        pool.submit(lines("a"), replace(DECODE, ensemble=("b",)))


def test_what_a_capacity_drops_is_counted_over_all_calls(pool, model, vocabulary):
    """Processes that share experts have a share of the lines each, and count what is dropped of them."""
    tight = replace(DECODE, capacity_factor=0.5)
    here = DropCount()
    before = pool.drops.asked, pool.drops.kept
    calls = [pool.submit(lines(*TURKISH[:4]), tight), pool.submit(lines(LONG), tight), pool.submit(lines(TURKISH[5]))]
    size = 2 // pool.num_replicas
    for texts, call in zip([TURKISH[:4], [LONG]], calls, strict=False):
        for rank in range(size):
            alone = Translator(model, vocabulary, tight, max_source_tokens=24)
            list(alone.translate(lines(*texts)[rank::size]))
            here.add(alone.drops)
        call.result()
    calls[-1].result()  # it has no capacity, so nothing is dropped
    assert (pool.drops.asked - before[0], pool.drops.kept - before[1]) == (here.asked, here.kept)
    assert 0 < here.kept < here.asked


def test_each_process_has_one_thread_and_an_allocator_that_keeps_memory(pool):
    pool.wait()
    settings = [worker.environ() for worker in workers()]
    assert sorted(setting["LOCAL_RANK"] for setting in settings) == ["0", "1"]
    assert {setting["OMP_NUM_THREADS"] for setting in settings} == {"1"}
    assert {setting["MALLOC_TRIM_THRESHOLD_"] for setting in settings} == {str(1 << 40)}


def test_an_error_belongs_to_its_call(pool):
    pool.wait()
    before = {worker.pid for worker in workers()}
    bad, good = pool.submit([*lines(LONG), Line(text="a", target="xx")]), pool.submit(lines(TURKISH[0]))
    with pytest.raises(ValueError, match="target language 'xx' has no tag"):
        bad.result()
    assert good.result()[0].text
    assert {worker.pid for worker in workers()} == before


def test_a_lost_process_is_an_error_of_its_calls_and_is_replaced(pool):
    pool.wait()
    before = workers()
    for worker in before:
        worker.suspend()
    lost = [pool.submit(lines(LONG)) for _ in range(pool.num_replicas)]
    later = pool.submit(lines(TURKISH[0]))
    wait_until_running(lost)
    for worker in before:
        worker.kill()
    for future in lost:
        with pytest.raises(
            TaskFailed,
            match=r"translate: (a process|process \d of 2) was killed by SIGKILL \(out of memory\?\); what it",
        ):
            future.result(30)
    assert later.result(60)[0].text
    assert not {worker.pid for worker in before} & {worker.pid for worker in workers()}


def test_a_call_that_is_given_up_ends_and_its_process_goes_on(pool):
    pool.wait()
    before = workers()
    running = [pool.submit(lines(" ".join([LONG] * 200), *TURKISH[:9])) for _ in range(pool.num_replicas)]
    waiting, later = pool.submit(lines(LONG)), pool.submit(lines(TURKISH[0]))
    wait_until_running(running)
    for future in (*running, waiting):
        pool.give_up(future)
    assert waiting.cancelled()
    for future in running:
        with pytest.raises(GivenUp):
            future.result(20)
        pool.give_up(future)  # too late, and so without effect
    assert later.result(20)[0].text
    assert {worker.pid for worker in workers()} == {worker.pid for worker in before}


def test_what_keeps_the_model_from_being_loaded_is_said_to_all(spec, tmp_path):
    runtime = load_config(["runtime.device=cpu", "runtime.processes=1", "runtime.ep=1"]).runtime
    with TranslatorPool(replace(spec, vocabulary=str(tmp_path)), runtime) as pool:
        future = pool.submit(lines("a"))
        for wait in (pool.wait, future.result):
            with pytest.raises(OSError, match="No such file"):
                wait()
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(lines("a"))


COMMAND = """
import json, sys, time
from pipeline.config import load_config
from pipeline.decode.config import DecodeConfig
from pipeline.decode.job.calls import TranslatorSpec
from pipeline.decode.job.workers import TranslatorPool

values = json.loads(sys.argv[1])
spec = TranslatorSpec(**{**values, "decode": DecodeConfig(**values["decode"])})
pool = TranslatorPool(spec, load_config([sys.argv[2]]).runtime)
assert "torch" not in sys.modules
print("started", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("ep", [1, 2])
def test_processes_end_with_the_one_that_started_them(spec, ep):
    command = subprocess.Popen(
        [sys.executable, "-c", COMMAND, json.dumps(asdict(spec)), f"runtime.ep={ep}"], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert command.stdout.readline() == b"started\n"
    children = psutil.Process(command.pid).children()
    assert len(children) == 2
    os.kill(command.pid, signal.SIGKILL)
    command.wait()
    assert all(gone(child.pid) for child in children)
