"""Real processes that share the experts of one model: what each holds, and how they end or go on together."""

import logging
import re
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from pipeline.commands.translate import load_translate
from pipeline.decode.job.calls import TranslatorSpec
from pipeline.decode.job.replica import GivenUp, Replica, ReplicaLost, runtime_of_replica
from pipeline.decode.job.workers import TranslatorPool
from pipeline.decode.text.line import Line
from pipeline.decode.text.translator import Translator
from pipeline.model.config import MoEConfig
from pipeline.tasks import TaskFailed
from pipeline.tasks.call import pack
from tests.parallel.logical_checkpoint import write_checkpoints
from tests.unit.decode.conftest import DECODE
from tests.unit.decode.text.test_translator import LONG, TURKISH, lines
from tests.unit.model.test_transformer import small

SILENCE = 4  # seconds after which a process counts as lost
LOADING = 150  # seconds in which a busy machine has loaded a model


def runtime(*words):
    return load_translate(["run=-", "pair=de-en", "runtime.device=cpu", f"runtime.heartbeat={SILENCE}", *words]).runtime


@pytest.fixture(scope="module")
def pair(spec):
    """One replica of two processes."""
    with TranslatorPool(spec, runtime("runtime.ep=2")) as pool:
        pool.wait()
        yield pool


def processes(pool):
    """Return the processes of a pool, by replica and rank."""
    return [psutil.Process(pid) for pid in process_ids(pool)]


def process_ids(pool):
    return [worker._process.pid for replica in pool._replicas for worker in replica._workers]


def end(pool, *, rank):
    """Kill a process that has no call, and wait until it has ended."""
    process = pool._replicas[0]._workers[rank]._process
    process.kill()
    process.wait()


def submitted(pool, *texts):
    """Return the future of a call that has begun."""
    future = pool.submit(lines(*texts))
    deadline = time.monotonic() + LOADING
    while not future.running():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.2)  # it is under way in all processes
    return future


def endless(pool):
    return submitted(pool, " ".join([LONG] * 300), " ".join([LONG] * 300))


def assert_translates_with_other_processes(pool, before):
    assert pool.submit(lines(TURKISH[0])).result(LOADING)[0].text
    assert not {*process_ids(pool)} & {process.pid for process in before}
    assert not any(process.is_running() for process in before)


def test_processes_of_a_command_make_as_many_replicas_as_fit():
    four = runtime("runtime.processes=4", "runtime.ep=2")
    assert (runtime_of_replica(four).processes, runtime_of_replica(four).ep) == (2, 2)
    assert runtime_of_replica(four).decode_experts == "sharded"
    for settings in (replace(four, ep=1), replace(four, decode_experts="replicated"), replace(four, ep=1, mp=2)):
        whole = runtime_of_replica(settings)
        assert (whole.processes, whole.ep, whole.mp, whole.decode_experts) == (1, 1, 1, "replicated")


def test_two_replicas_translate_exactly_as_one_process_does(spec, model, vocabulary):
    """They agree in float64, searched and sampled, with fewer lines than processes, and if lines are split or empty."""
    exact = replace(DECODE, precision="fp64")
    sampled = replace(exact, search="sample", beam=1, n_best=3)
    batch = lines(*TURKISH[:9], "", LONG)
    with TranslatorPool(replace(spec, decode=exact), runtime("runtime.processes=4", "runtime.ep=2")) as pool:
        assert pool.num_replicas == 2
        pool.wait()
        places = [process.environ() for process in processes(pool)]
        assert [place["LOCAL_RANK"] for place in places] == ["0", "1", "2", "3"]
        assert [place["RANK"] for place in places] == ["0", "1", "0", "1"]
        assert {place["GLOO_SOCKET_IFNAME"] for place in places} == {"lo"}
        calls = [pool.submit(part, config) for config in (exact, sampled) for part in (batch, batch[:1], batch[1:2])]
        actual = [call.result(LOADING) for call in calls]
    whole = model.double()
    try:
        expected = [
            [outcome for _, outcome in sorted(Translator(whole, vocabulary, config, max_source_tokens=24).translate(p))]
            for config in (exact, sampled)
            for p in (batch, batch[:1], batch[1:2])
        ]
    finally:
        model.float()
    for translations, expected_ones in zip(actual, expected, strict=True):
        assert [[one.text for one in line.alternatives] for line in translations] == [
            [one.text for one in line.alternatives] for line in expected_ones
        ]
        assert [line.score for line in translations] == pytest.approx([line.score for line in expected_ones], abs=1e-12)
        assert [(line.skipped, line.cut) for line in translations] == [(o.skipped, o.cut) for o in expected_ones]


@pytest.fixture(scope="module")
def bulky(vocabulary, prepared, tmp_path_factory):
    """A model that is mostly experts, and their bytes."""
    config = small(moe=MoEConfig(num_experts=8, expert_dim=1 << 16), decoder_layers=2)
    root = tmp_path_factory.mktemp("bulky")
    spec = TranslatorSpec(
        checkpoints=str(write_checkpoints(root, config, vocabulary)),
        vocabulary=prepared.vocabulary,
        decode=DECODE,
        max_source_tokens=24,
    )
    return spec, 4 * 2 * 2 * 8 * config.dim * (1 << 16)  # float32, two matrices, two layers


def memory(process):
    """Return the bytes of a process, without those of files."""
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    return int(re.search(r"RssAnon:\s+(\d+) kB", status)[1]) * 1024


def test_each_process_holds_its_share_of_the_experts_and_the_log_says_how_much(bulky, caplog):
    spec, experts = bulky
    sizes = {}
    for ep in (1, 2):
        with (
            caplog.at_level(logging.INFO),
            TranslatorPool(spec, runtime("runtime.processes=2", f"runtime.ep={ep}")) as pool,
        ):
            pool.wait()
            sizes[ep] = [memory(process) for process in processes(pool)]
    saved = [whole - cut for whole, cut in zip(sizes[1], sizes[2], strict=True)]
    assert all(0.4 * experts < size < 0.6 * experts for size in saved), (sizes, experts)
    (message,) = [message for message in caplog.messages if message.startswith("experts while decoding")]
    weights = float(re.match(r"experts while decoding: cut over 2 processes; 2 x ([\d.]+) GB of weights", message)[1])
    assert experts / 2 < weights * 1e9 < 0.6 * experts


def test_a_wrong_line_of_one_process_ends_the_call_of_both_and_they_go_on(pair):
    before = processes(pair)
    for wrong_rank in (0, 1):
        batch = lines(*TURKISH[:4])
        batch[wrong_rank] = Line(text="a", target="xx")
        with pytest.raises(ValueError, match="target language 'xx' has no tag"):
            pair.submit(batch).result(LOADING)
    assert pair.submit(lines(TURKISH[0])).result(LOADING)[0].text
    assert processes(pair) == before


@pytest.mark.parametrize("rank", [0, 1])
def test_one_that_is_killed_ends_the_call_of_both_and_is_named(pair, rank):
    before = processes(pair)
    call = endless(pair)
    before[rank].kill()
    with pytest.raises(
        TaskFailed, match=rf"^translate: process {rank} of 2 was killed by SIGKILL \(out of memory\?\); "
    ):
        call.result(LOADING)
    assert_translates_with_other_processes(pair, before)


@pytest.mark.parametrize("rank", [0, 1])
def test_one_that_is_silent_ends_the_call_of_both_and_is_named(pair, rank):
    before = processes(pair)
    call = endless(pair)
    before[rank].suspend()
    with pytest.raises(
        TaskFailed,
        match=rf"^translate: process {rank} of 2 has been silent for \d+ s .*; those that share its model have",
    ):
        call.result(LOADING)
    assert_translates_with_other_processes(pair, before)


def test_one_without_memory_ends_the_call_of_both_with_its_error(pair):
    """Its peer waits in an exchange between experts, and would not learn of it."""
    before = processes(pair)
    pair.submit(lines(TURKISH[0])).result(LOADING)
    size = before[1].memory_info().vms
    before[1].rlimit(psutil.RLIMIT_AS, (size, size))
    with pytest.raises((RuntimeError, MemoryError)) as raised:
        pair.submit(
            [*lines(*TURKISH[:40]), *lines(*[LONG] * 400)], replace(DECODE, beam=12, batch_tokens=400_000)
        ).result(LOADING)
    assert not isinstance(raised.value, TaskFailed)
    wait_for_other_processes(pair, before)
    assert_translates_with_other_processes(pair, before)


def wait_for_other_processes(pool, before):
    deadline = time.monotonic() + 30
    while {*process_ids(pool)} & {process.pid for process in before}:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_call_that_is_given_up_while_the_model_is_loaded_again_does_not_end_the_loading(pair):
    """A server whose model takes longer to load than requests wait would never answer again."""
    pair.submit(lines(TURKISH[0])).result(LOADING)
    before = processes(pair)
    end(pair, rank=1)
    call = pair.submit(lines(TURKISH[0]))
    wait_for_other_processes(pair, before)
    loading = processes(pair)
    pair.give_up(call)
    with pytest.raises(GivenUp):
        call.result(LOADING)
    assert pair.submit(lines(TURKISH[0])).result(LOADING)[0].text
    assert processes(pair) == loading


def test_a_suspended_process_is_not_waited_for_when_others_take_its_place(pair, monkeypatch):
    monkeypatch.setattr("pipeline.tasks.pool.GRACE", 10 * LOADING)
    pair.submit(lines(TURKISH[0])).result(LOADING)
    before = processes(pair)
    before[0].suspend()
    end(pair, rank=1)
    assert_translates_with_other_processes(pair, before)


def test_processes_that_cannot_be_started_are_an_error_until_they_can(pair, monkeypatch, tmp_path):
    before = processes(pair)
    call = endless(pair)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    before[0].kill()
    with pytest.raises(TaskFailed, match="process 0 of 2 was killed by SIGKILL"):
        call.result(LOADING)
    with pytest.raises(TaskFailed, match=r"^translate: new processes cannot be started \(.*No such file.*; make room"):
        pair.submit(lines(TURKISH[0])).result(LOADING)
    monkeypatch.undo()
    assert_translates_with_other_processes(pair, before)


FIRST_ENDS = """
import os, threading, time
if os.environ["RANK"] == "0":
    threading.Timer(0.5, os._exit, (1,)).start()
else:
    time.sleep(20)
"""


def test_one_that_ends_after_its_share_of_a_call_ends_the_call():
    """It ends because the other one is silent, which may be for ever."""
    replica = Replica(0, runtime("runtime.ep=2"))
    try:
        with pytest.raises(ReplicaLost, match="process 0 of 2 ended with exit code 1"):
            replica.call(pack(exec, FIRST_ENDS, "test"))
    finally:
        replica.kill()
        replica.close()
