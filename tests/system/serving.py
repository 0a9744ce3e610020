"""`make serve` as a process, with the smoke run."""

import re
import subprocess
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass

import psutil
import pytest
import requests

from pipeline.config import ROOT

SETTINGS = ["run=smoke", "port=0", "limits.lines=2000", "limits.characters=200000", "batching.lines=16"]


@dataclass
class Server:
    process: subprocess.Popen
    url: str
    output: list[str]
    reader: threading.Thread

    def ask(self, text, timeout=60, **body):
        request = {"pair": "de-en", "text": text, "beam": 1, **body}
        return requests.post(f"{self.url}/v1/translate", json=request, timeout=timeout)

    def translated(self, text, **body):
        answer = self.ask(text, **body)
        assert answer.status_code == 200, answer.text
        return answer.json()["translations"]

    def health(self):
        return requests.get(f"{self.url}/health", timeout=10)

    def wait_until_healthy(self):
        deadline = time.monotonic() + 120
        while not self.health().ok:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    @property
    def workers(self):
        return psutil.Process(self.process.pid).children(recursive=True)


@contextmanager
def started(place, *settings):
    """A server that can be connected to, and loads its model."""
    command = place.python("serve", *SETTINGS, *settings)
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    output = []
    try:
        for line in process.stderr:
            output.append(line)
            if match := re.search(r"^loading .* for (http://127\.0\.0\.1:\d+)$", line):
                break
        else:
            pytest.fail("".join(output))
        reader = threading.Thread(target=output.extend, args=(process.stderr,))  # so that it never waits for us
        reader.start()
        yield Server(process=process, url=match[1], output=output, reader=reader)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
