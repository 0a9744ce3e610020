"""A real server under all attacks at once still answers another client in time.

LOAD_SECONDS is the duration, by default 20.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from urllib.parse import urlsplit

import psutil
import pytest

from pipeline.config import ROOT
from tests.hostile.server_attacks import ATTACKS
from tests.system.place import Place
from tests.system.serving import started

SECONDS = float(os.environ.get("LOAD_SECONDS", "20"))
FIXTURE = ROOT / "tests" / "fixtures" / "run-0.2.0"
LIMITS = ["lines=256", "characters=20000", "seconds=4", "client_connections=32", "client_rate=25"]
SOURCE, TRANSLATION = "Bir karakterin üzerinde üç nokta", "Ent Int Con the grrrs"


@pytest.fixture
def server(tmp_path):
    place = Place(tmp_path)
    shutil.copytree(FIXTURE / "finished", tmp_path / "artifacts")
    (tmp_path / "runs" / "old").mkdir(parents=True)
    shutil.copy(FIXTURE / "run.json", tmp_path / "runs" / "old")
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, files[1]))  # the usual limit of a shell
    try:
        with started(place, "run=old", "runtime.processes=1", *(f"limits.{limit}" for limit in LIMITS)) as running:
            resource.setrlimit(resource.RLIMIT_NOFILE, files)
            end = time.monotonic() + 120
            while not running.health().ok:
                assert time.monotonic() < end
                time.sleep(0.05)
            yield running
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, files)


@pytest.mark.quiet
def test_a_client_is_answered_in_time_while_others_attack(server):
    process = psutil.Process(server.process.pid)
    memory, log_lines = process.memory_info().rss, len(server.output)
    port = str(urlsplit(server.url).port)
    command = [sys.executable, "-m", "tests.hostile.server_attacks", port, str(SECONDS)]
    waits = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as attackers:
        try:
            time.sleep(2)  # until the attacks have started
            while attackers.poll() is None:
                start = time.monotonic()
                answer = server.ask(SOURCE, pair="tr-en", timeout=30)
                waits.append(time.monotonic() - start)
                assert answer.status_code == 200, answer.text
                assert answer.json()["translations"][0]["text"] == TRANSLATION
                time.sleep(0.05)
        finally:
            attackers.kill()
        attempts = json.loads(attackers.stdout.read())
    waits.sort()
    median, late = waits[len(waits) // 2], waits[int(0.99 * len(waits))]
    grown = (process.memory_info().rss - memory) / 1e6
    print(f"{len(waits)} requests: median {median:.3f} s, p99 {late:.3f} s; {grown:.0f} MB more; attacks: {attempts}")
    assert set(attempts) == set(ATTACKS)
    assert late < 2
    assert grown < 200
    assert len(server.output) - log_lines <= 3, "".join(server.output[-10:])
    assert server.health().ok
