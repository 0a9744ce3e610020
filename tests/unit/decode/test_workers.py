"""Real processes that hold a model: the same translations, errors that reach whoever asked, losses made good."""

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
from pipeline.decode.text import Line
from pipeline.decode.translator import Translator
from pipeline.decode.workers import GivenUp, TranslatorPool
from pipeline.model.moe.drops import DropCount
from pipeline.tasks import TaskFailed
from tests.conftest import ROOT
from tests.unit.decode.conftest import DECODE
from tests.unit.decode.test_translator import LONG, TURKISH, lines
from tests.unit.tasks.test_tasks import gone


def workers():
    return [each for each in psutil.Process().children() if "pipeline.tasks.worker" in each.cmdline()]


def test_translations_are_those_of_a_translator_here(pool, model, vocabulary):
    asked = lines(*TURKISH[:6], "", LONG)
    expected = dict(Translator(model, vocabulary, DECODE, max_source_tokens=24).translate(asked))
    found = [pool.submit(asked), pool.submit(asked[::-1])]
    for index, line in enumerate(asked):
        for each in (found[0].result()[index], found[1].result()[len(asked) - 1 - index]):
            assert (each.text, each.skipped, each.cut) == (
                expected[index].text,
                expected[index].skipped,
                expected[index].cut,
            ), line
            assert each.score == pytest.approx(expected[index].score, abs=1e-4)


def test_a_call_may_decode_otherwise_but_not_with_another_model(pool, model, vocabulary):
    greedy = replace(DECODE, beam=1, max_length_extra=1)
    (expected,) = dict(Translator(model, vocabulary, greedy, max_source_tokens=24).translate(lines(LONG))).values()
    assert pool.submit(lines(LONG), greedy).result()[0].text == expected.text
    assert pool.submit(lines(LONG)).result()[0].text != expected.text
    with pytest.raises(ValueError, match=r"decode.precision=fp64: the model is loaded with fp32; start again"):
        pool.submit(lines("a"), replace(DECODE, precision="fp64"))


def test_what_a_capacity_drops_is_counted_over_all_calls(pool, model, vocabulary):
    tight = replace(DECODE, capacity_factor=0.5)
    here = DropCount()
    before = pool.drops.asked, pool.drops.kept
    calls = [pool.submit(lines(*TURKISH[:4]), tight), pool.submit(lines(LONG), tight), pool.submit(lines(TURKISH[5]))]
    for texts, call in zip([TURKISH[:4], [LONG]], calls, strict=False):
        alone = Translator(model, vocabulary, tight, max_source_tokens=24)
        list(alone.translate(lines(*texts)))
        here.add(alone.drops)
        call.result()
    calls[-1].result()  # of which nothing is dropped
    assert (pool.drops.asked - before[0], pool.drops.kept - before[1]) == (here.asked, here.kept)
    assert 0 < here.kept < here.asked


def test_each_process_has_one_thread_and_an_allocator_that_keeps_memory(pool):
    pool.wait()
    settings = [each.environ() for each in workers()]
    assert sorted(each["LOCAL_RANK"] for each in settings) == ["0", "1"]
    assert {(each["OMP_NUM_THREADS"], each["MALLOC_TRIM_THRESHOLD_"]) for each in settings} == {("1", str(1 << 40))}


def test_an_error_belongs_to_its_call(pool):
    bad, good = pool.submit([Line(text="a", target="xx")]), pool.submit(lines(TURKISH[0]))
    with pytest.raises(ValueError, match="target language 'xx' has no tag"):
        bad.result()
    assert good.result()[0].text


def test_a_lost_process_is_an_error_of_its_calls_and_is_replaced(pool):
    pool.wait()
    before = workers()
    for each in before:
        each.suspend()
    lost = [pool.submit(lines(LONG)) for _ in before]
    later = pool.submit(lines(TURKISH[0]))
    deadline = time.monotonic() + 20
    while not all(future.running() for future in lost):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for each in before:
        each.kill()
    for future in lost:
        with pytest.raises(
            TaskFailed, match=r"translate: a process was killed by SIGKILL \(out of memory\?\); what it"
        ):
            future.result(30)
    assert later.result(60)[0].text
    assert not {each.pid for each in before} & {each.pid for each in workers()}


def test_a_call_that_is_given_up_ends_and_its_process_goes_on(pool):
    pool.wait()
    before = workers()
    begun = [pool.submit(lines(" ".join([LONG] * 200))) for _ in before]
    waiting, later = pool.submit(lines(LONG)), pool.submit(lines(TURKISH[0]))
    deadline = time.monotonic() + 20
    while not all(future.running() for future in begun):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for future in (*begun, waiting):
        pool.give_up(future)
    assert waiting.cancelled()
    for future in begun:
        with pytest.raises(GivenUp):
            future.result(20)
        pool.give_up(future)  # too late, and so without effect
    assert later.result(20)[0].text
    assert {each.pid for each in workers()} == {each.pid for each in before}


def test_what_keeps_the_model_from_being_loaded_is_said_to_all(spec, tmp_path):
    one = load_config(["runtime.device=cpu", "runtime.processes=1", "runtime.ep=1"]).runtime
    with TranslatorPool(replace(spec, vocabulary=str(tmp_path)), one) as pool:
        asked = pool.submit(lines("a"))
        for wait in (pool.wait, asked.result):
            with pytest.raises(OSError, match="No such file"):
                wait()
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(lines("a"))


COMMAND = """
import json, sys, time
from pipeline.config import load_config
from pipeline.decode.config import DecodeConfig
from pipeline.decode.workers import TranslatorPool, TranslatorSpec

values = json.loads(sys.argv[1])
spec = TranslatorSpec(**{**values, "decode": DecodeConfig(**values["decode"])})
pool = TranslatorPool(spec, load_config([]).runtime)
assert "torch" not in sys.modules
print("started", flush=True)
time.sleep(60)
"""


def test_processes_end_with_the_one_that_started_them(spec):
    command = subprocess.Popen(
        [sys.executable, "-c", COMMAND, json.dumps(asdict(spec))], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert command.stdout.readline() == b"started\n"
    started = psutil.Process(command.pid).children()
    assert len(started) == 2
    os.kill(command.pid, signal.SIGKILL)
    command.wait()
    assert all(gone(each.pid) for each in started)
