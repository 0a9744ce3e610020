"""Stages side by side."""

import threading
import time
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa
import pytest

from pipeline.corpus.bitext import SCHEMA, iter_bitext, write_bitext
from pipeline.corpus.sources.download import Patience, download
from pipeline.dag.stage import Stage
from pipeline.dag.store import Store
from pipeline.stopping import Stopped, stopping
from pipeline.tasks import side_by_side


@pytest.fixture(autouse=True)
def nobody_stopped():
    yield
    stopping.clear()


@pytest.mark.parametrize("at_once", [1, 2, 8])
def test_results_are_in_the_order_of_the_actions(at_once):
    most, running, lock = 0, 0, threading.Lock()

    def action(number):
        nonlocal most, running
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02 * (5 - number))
        with lock:
            running -= 1
        return number

    assert side_by_side([partial(action, number) for number in range(5)], at_once=at_once) == list(range(5))
    assert most == min(at_once, 5)


def test_the_first_error_is_raised_at_once_and_ends_the_others():
    """It is that of an action in the middle; those before it wait, and are told to stop before their time is over."""
    started, stops = [], []

    def waiting():
        started.append(1)
        stops.append(stopping.wait(120))
        if stops[-1]:
            raise Stopped("waiting")

    def failing():
        while len(started) < 2:
            time.sleep(0.01)
        raise ValueError("the pair has no rows")

    with pytest.raises(ValueError, match="the pair has no rows"):
        side_by_side([waiting, waiting, failing, waiting], at_once=3)
    assert stops == [True] * len(started)
    assert 2 <= len(started) <= 3
    assert side_by_side([lambda: 1, lambda: 2], at_once=2) == [1, 2]
    assert not stopping.is_set()


def test_a_thread_that_reads_for_long_stops_with_the_others(tmp_path):
    batch = pa.RecordBatch.from_pydict({"src": ["a"] * 1000, "tgt": ["b"] * 1000}, schema=SCHEMA)
    write_bitext(tmp_path / "train.arrow", [batch] * 10)
    reading = threading.Event()

    def read():
        while True:
            for _ in iter_bitext(tmp_path, "train"):
                reading.set()

    def failing():
        reading.wait()
        raise ValueError("the pair has no rows")

    with pytest.raises(ValueError, match="the pair has no rows"):
        side_by_side([read, failing], at_once=2)


@pytest.fixture
def endless():
    """The address of a file without an end."""

    class Server(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            with suppress(ConnectionError):
                while True:
                    self.wfile.write(bytes(1 << 16))
                    time.sleep(0.01)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/endless"
        server.shutdown()


def test_downloads_and_waits_for_a_server_stop_with_the_others(endless, tmp_path):
    waiting = threading.Event()

    def wait():
        waiting.set()
        Patience(pause=600.0).wait(1)

    def failing():
        waiting.wait()
        while not (tmp_path / "file.part").exists():
            time.sleep(0.01)
        raise ValueError("the pair has no rows")

    began = time.monotonic()
    with pytest.raises(ValueError, match="the pair has no rows"):
        side_by_side([partial(download, endless, tmp_path / "file"), wait, failing], at_once=3)
    assert time.monotonic() - began < 500  # the wait alone would last 600 s, and the download for ever


def test_a_process_that_was_asked_to_stop_stays_so():
    def asked():
        stopping.set()
        raise Stopped("asked")

    with pytest.raises(Stopped):
        side_by_side([asked, asked], at_once=2)
    assert stopping.is_set()


def test_a_store_serves_several_threads(tmp_path):
    """Each stage runs once however many ask for it, and all are accounted for."""
    store = Store(tmp_path)
    ran = []

    def run(number, out):
        ran.append(number)
        time.sleep(0.01)
        (out / "data").write_text(str(number))

    def get(number):
        stage = Stage(name="count", version=1, config={"x": number}, run=partial(run, number), label=str(number))
        return (store.get(stage).path / "data").read_text()

    assert side_by_side([partial(get, n % 6) for n in range(24)], at_once=8) == [str(n % 6) for n in range(24)]
    assert sorted(ran) == list(range(6))
    assert sorted(store.ran) == [f"count {n}" for n in range(6)]
    assert len(store.reused) == 6


def test_no_stage_begins_once_the_process_was_asked_to_stop(tmp_path):
    stopping.set()
    with pytest.raises(Stopped):
        Store(tmp_path).get(Stage(name="count", version=1, config={}, run=lambda out: (out / "x").touch()))
    stopping.clear()
    assert Store(tmp_path).get(Stage(name="count", version=1, config={}, run=lambda out: (out / "x").touch())).path
