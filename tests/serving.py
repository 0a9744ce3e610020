"""A server in this process on a real socket. Its translations are the texts in capitals."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from pipeline.corpus.languages import LangPair
from pipeline.dag.artifact import Artifact
from pipeline.decode.config import DecodeConfig
from pipeline.decode.job.replica import GivenUp
from pipeline.decode.text.line import Alternative, Translated
from pipeline.finished_run import FinishedRun
from pipeline.serve.app import Service, create_app
from pipeline.serve.batching import Batcher
from pipeline.serve.config import load_serve
from pipeline.serve.hosts import for_its_hosts
from pipeline.serve.server import address, listen, web_server
from pipeline.tasks.call import TaskFailed

DECODE = DecodeConfig(beam=4, length_penalty=1.0)
PAIRS = (LangPair("de", "en"), LangPair("en", "ar"), LangPair("he", "en"))


class Capitals:
    """A pool of threads. The text `lost` makes a call fail.

    calls: texts and settings of each call.
    go: event that calls wait for.
    """

    def __init__(self, workers=1):
        self.threads = ThreadPoolExecutor(workers)
        self.calls = []
        self.given_up = {}
        self.go = threading.Event()
        self.go.set()

    def submit(self, lines, config=None):
        self.calls.append(([line.text for line in lines], config))
        given_up = threading.Event()
        future = self.threads.submit(self._translate, lines, config, given_up)
        self.given_up[future] = given_up
        return future

    def give_up(self, future):
        self.given_up[future].set()

    def _translate(self, lines, config, given_up):
        while not self.go.wait(0.005):
            if given_up.is_set():
                raise GivenUp
        if any(line.text == "lost" for line in lines):
            raise TaskFailed("translate: a process was killed by SIGKILL")
        return [self._translated(line, config.n_best) for line in lines]

    @staticmethod
    def _translated(line, n_best):
        if not line.text.strip():
            return Translated(skipped="empty")
        texts = [line.prefix + line.text.upper() + "!" * rank for rank in range(n_best)]
        return Translated(
            alternatives=tuple(Alternative(text=text, score=-0.5 - rank) for rank, text in enumerate(texts)),
            cut="split" if len(line.text) > 100 else "",
        )


@dataclass
class Served:
    url: str
    pool: Capitals
    batcher: Batcher
    service: Service
    server: uvicorn.Server


@cache
def _defaults():
    return load_serve(["run=none"])


@contextmanager
def served(*, limits=None, workers=1, below="", decode=DECODE):
    """Run a server.

    limits: changes to those of configs/serve.yaml.
    below: a path, as behind a reverse proxy.
    decode: settings for requests that give no others.
    """
    config = _defaults()
    limits = replace(config.limits, **(limits or {}))
    artifact = Artifact(stage="train", key="", path=Path(), content="")
    run = FinishedRun(
        name="capitals",
        commit="",
        pairs=PAIRS,
        model=artifact,
        vocabulary=artifact,
        decode=decode,
        directory=Path(),
        max_source_tokens=64,
    )
    pool = Capitals(workers)
    batcher = Batcher(pool, config.batching, workers=workers, waiting=limits.waiting)
    service = Service(run=run, decode=decode, limits=limits, batcher=batcher, loaded=True)
    app = create_app(service)
    app = Starlette(routes=[Mount(below, app)]) if below else app
    with listen("127.0.0.1", 0) as listener:
        server = web_server(for_its_hosts(app, listener), grace=1, limits=limits)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield Served(url=address(listener) + below, pool=pool, batcher=batcher, service=service, server=server)
        finally:
            pool.go.set()
            server.should_exit = True
            thread.join()
            pool.threads.shutdown()


def wait_until(condition):
    """Wait at most ten seconds for a condition to become true."""
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)
