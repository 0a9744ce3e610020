"""The contest of quality: its clock, its batches and its table; and a quick run of every system that is installed."""

import csv
import json
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from bench.output import ORIGIN, portable
from bench.quality.__main__ import QUICK_MINUTES
from bench.quality.clock import MARKS, Clock
from bench.quality.systems import CONFIGURATIONS, OWN, RECIPE, SYSTEMS, Entry, entries
from bench.quality.table import COLUMNS, head_start, judge, table
from bench.quality.text import length_batches
from bench.train.contest import not_installed
from pipeline.config import ROOT, load_config


def ids(length):
    return np.zeros(length, dtype=np.int32)


def test_batches_hold_every_sentence_once_with_others_of_its_length():
    random = np.random.default_rng(1)
    lengths = random.integers(3, 30, size=(400, 2))
    sentences = [(ids(source), ids(target)) for source, target in lengths]
    first, second = (length_batches(sentences, 100, seed) for seed in (1, 2))
    for batches in (first, second):
        flat = sorted((len(s), len(t)) for batch in batches for s, t in batch)
        assert flat == sorted(map(tuple, lengths.tolist()))
        spread = [max(map(len, pair)) for batch in batches for pair in batch]
        assert spread != sorted(spread)  # batches come in any order
        assert max(max(max(map(len, p)) for p in b) - min(max(map(len, p)) for p in b) for b in batches) < 8  # of 27
    assert [[id(pair) for pair in batch] for batch in first] != [[id(pair) for pair in batch] for batch in second]


def test_the_clock_counts_neither_start_nor_pauses(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    ended = []
    monkeypatch.setattr("os._exit", ended.append)
    saved = []

    def save(path):
        now[0] += 50  # saving takes time
        saved.append(path.name)

    clock = Clock(tmp_path, [1.0, 2.0], rank=0, save=save, tokens=lambda: 7, parameters=3)
    for _ in range(10):
        clock.step()
        now[0] += 20
        if now[0] < 150:
            with clock.paused():
                now[0] += 1000  # a validation
        if ended:
            break
    assert saved == ["mark-1", "mark-2"]
    marks = [json.loads(line) for line in (tmp_path / MARKS).read_text(encoding="utf-8").splitlines()]
    assert [(mark["minutes"], mark["seconds"], mark["steps"]) for mark in marks] == [(1, 60, 3), (2, 120, 6)]
    assert ended == [0]


PEER = """
import time
from bench.quality.peer import run_peer

def translate(job):
    print(job["text"], flush=True)
    time.sleep(300)

run_peer({"translate": translate})
"""
STARTER = """
import subprocess, sys
from pathlib import Path
from bench.train.contest import environment
from bench.quality.systems import Entry

directory = Path(sys.argv[1])
variables = environment(Entry(system="joeynmt", configuration="ours").contender, "cpu", 0, directory)
command = [sys.executable, "-c", sys.argv[2], str(directory / "job.json"), "translate"]
process = subprocess.Popen(command, env=variables, start_new_session=True)
print("process", process.pid, flush=True)
process.wait()
"""


def test_a_peer_ends_with_the_process_that_started_it(tmp_path):
    (tmp_path / "job.json").write_text('{"text": "started"}')
    words = [sys.executable, "-c", STARTER, str(tmp_path), PEER]
    starter = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    lines = [line for line in iter(starter.stdout.readline, "started\n") if line.startswith("process ")]
    peer = psutil.Process(int(lines[0].split()[1]))
    starter.kill()
    starter.wait()
    try:
        peer.wait(30)
    finally:
        if peer.is_running():
            peer.kill()


@pytest.mark.parametrize("system", SYSTEMS[1:])
def test_every_peer_lives_so(system):
    main = (ROOT / "bench" / "quality" / f"peer_{system}.py").read_text(encoding="utf-8").partition("__main__")[2]
    assert main.rstrip().endswith('run_peer({"train": train, "translate": translate})')


def test_every_system_has_our_recipe_and_two_have_their_own():
    names = [entry.name for entry in entries(SYSTEMS)]
    assert names == [
        *("ours-ours", "eole-own", "eole-ours", "eole-initial", "joeynmt-own", "joeynmt-ours", "joeynmt-initial"),
        *("transformers-ours", "transformers-initial"),
    ]
    assert all("ours" in configurations for configurations in CONFIGURATIONS.values())
    assert all(entry.contender.processes * entry.contender.threads == 2 for entry in entries(SYSTEMS))
    assert [entry.name for entry in entries(SYSTEMS, (OWN,))] == ["eole-own", "joeynmt-own"]
    size = load_config([f"recipes={RECIPE}"]).vocab.source_size
    assert Entry(system="joeynmt", configuration=OWN).vocabulary not in (0, size)


def test_ours_is_held_against_the_best_peer_of_the_same_minute():
    scored = {
        "ci_low": 0.0,
        "ci_high": 9.0,
        "steps": 1,
        "target_tokens": 60,
        "seconds": 2.0,
        "parameters": 1,
        "note": "",
    }
    rows = [
        {"system": "ours", "configuration": "ours", "minutes": 5.0, "bleu": 30.0, **scored},
        {"system": "eole", "configuration": "own", "minutes": 5.0, "bleu": 31.0, **scored},
        {"system": "eole", "configuration": "ours", "minutes": 5.0, "bleu": 20.0, **scored},
        {"system": "eole", "configuration": "own", "minutes": 15.0, "bleu": 39.0, **scored},
        {"system": "joeynmt", "configuration": "own", "note": "not installed"},
    ]
    judged = judge(rows, "a machine")
    assert (judged[0]["measured"], judged[0]["limit"], judged[0]["verdict"]) == (30.0, 31.0, "missed")
    assert all(row["verdict"] is None for row in judged[1:])
    assert "not installed" in table(judged)
    assert judge([{**rows[0], "bleu": 31.0}, rows[1]], "a machine")[0]["verdict"] == "ok"


def test_published_settings_have_no_directory_of_this_machine(tmp_path):
    settings = {"out": f"{tmp_path}/runs/a", "corpus": {"path": "/home/me/text"}, "shapes": ({"rows": 4}, "a/b", None)}
    assert portable(settings, tmp_path) == {
        "out": "runs/a",
        "corpus": {"path": "text"},
        "shapes": [{"rows": 4}, "a/b", None],
    }


def test_the_minute_is_named_when_ours_has_the_last_score_of_the_best_peer():
    rows = [
        {"system": system, "configuration": "ours", "minutes": minutes, "bleu": bleu}
        for system, scores in {"ours": (30, 37, 40), "eole": (20, 30, 35), "joeynmt": (10, 20, 36.5)}.items()
        for minutes, bleu in zip((5.0, 15.0, 45.0), scores, strict=True)
    ]
    best = "joeynmt (our recipe), the best peer after 45 minutes: 36.5."
    assert head_start(rows) == f"{best} Ours has as much after 15 minutes: 37.0."
    assert head_start([{**row, "bleu": 31} if row["bleu"] > 36.5 else row for row in rows]) == (
        f"{best} Ours reaches 31.0 by minute 45."
    )
    assert head_start(rows[:3]) == ""


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_quick_contest_trains_translates_and_scores(system, tmp_path):
    """A real run in seconds of training. A peer is left out where bench/setup.sh has not installed it."""
    entry = Entry(system=system, configuration="ours")
    if not_installed(entry.contender):
        pytest.skip(f"{system}: run bench/setup.sh quality")
    artifacts = tmp_path / "artifacts"
    command = [sys.executable, "-m", "bench.quality", "--quick", "--systems", system]
    configurations = [configuration for configuration in CONFIGURATIONS[system] if configuration != OWN]
    command += ["--configurations", *configurations, "--out", str(tmp_path / "out")]
    process = subprocess.run(
        [*command, "--artifacts", str(artifacts)], cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )
    assert process.returncode == 0, process.stderr
    (path,) = (tmp_path / "out").glob("*.csv")
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [*COLUMNS, *ORIGIN]
    assert [row["configuration"] for row in rows] == [name for name in configurations for _ in QUICK_MINUTES]
    assert [float(row["minutes"]) for row in rows] == len(configurations) * [*QUICK_MINUTES]
    for row in rows:
        assert row["note"] == ""
        assert float(row["seconds"]) >= 60 * float(row["minutes"])
        assert int(row["steps"]) > 0
        assert int(row["target_tokens"]) > 0
        assert 0 <= float(row["bleu"]) <= 100
    assert int(rows[1]["steps"]) > int(rows[0]["steps"])
    assert path.with_suffix(".png").stat().st_size > 5000
    settings = path.with_suffix(".json").read_text(encoding="utf-8")
    deviations = [json.loads(settings)[f"{system}-{name}"].get("initial_deviation") for name in configurations]
    assert deviations == ([None] if system == "ours" else [0.0, 64**-0.5])
    assert str(tmp_path) not in settings
    again = subprocess.run(
        [*command, "--artifacts", str(artifacts)], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert again.returncode == 0
    assert "training until" not in again.stderr
