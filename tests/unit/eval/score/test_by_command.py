"""Metrics by commands of the user's: what they get, what they may print, and their scores of a run."""

import csv
import hashlib
import os
import re
import shlex
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from eval.__main__ import main
from eval.records.results import load_results
from eval.records.run_record import load_translations
from eval.records.scores import load_scores
from eval.report.page import write_report
from eval.score.by_command import (
    check_command,
    command_signature,
    file_digests,
    scores_by_command,
    scores_unless_stopped,
)
from eval.score.run import write_scores
from eval.score.significance import percentile_interval

ROOT = Path(__file__).resolve().parents[4]
SENTENCES = [("a\tb", "c d", "e\nf"), ("", "x", "ü")]


def command_of(tmp_path, code):
    program = tmp_path / "a program.py"
    program.write_text(code, encoding="utf-8")
    return f"{shlex.quote(sys.executable)} {shlex.quote(str(program))}"


def documented():
    text = (ROOT / "docs" / "scoring.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(# metric\.py.*?)```", text, flags=re.DOTALL)
    return code


def test_a_program_gets_three_texts_a_line_and_prints_a_number_for_each(tmp_path):
    code = """
import sys
lines = sys.stdin.read().split(chr(10))[:-1]
assert [line.split(chr(9)) for line in lines] == [["a b", "c d", "e f"], ["", "x", "ü"]], lines
print("warnings go to stderr", file=sys.stderr)
sys.stderr.buffer.write(bytes([255]))  # no UTF-8
print(0.25); print("-1e-3")
"""
    assert scores_by_command("score.commands.comet", command_of(tmp_path, code), SENTENCES) == [0.25, -0.001]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("print(1)", r"score.commands.comet=.* printed 1 numbers for 2 sentences; it must print one number a line"),
        ("print(1); print('nan')", "printed 'nan' for sentence 2; it must be a finite number"),
        ("print('score'); print(1)", "printed 'score' for sentence 1"),
        ("raise SystemExit('no model there')", "ended with code 1: no model there"),
        ("raise SystemExit(3)", "ended with code 3: it wrote no message"),
    ],
)
def test_what_a_program_does_wrong_is_named(tmp_path, code, message):
    with pytest.raises(ValueError, match=message):
        scores_by_command("score.commands.comet", command_of(tmp_path, code), SENTENCES)


def test_a_program_does_not_take_part_in_the_job_that_starts_it(tmp_path, monkeypatch):
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT", "SLURM_PROCID", "OMP_NUM_THREADS", "BABELSHARD_PARENT")
    for name in (*names, "MY_RANK"):
        monkeypatch.setenv(name, "1")
    code = f"import os\nprint(sum(name in os.environ for name in {names})); print(os.environ['MY_RANK'])"
    assert scores_by_command("score.commands.comet", command_of(tmp_path, code), SENTENCES) == [0, 1]


def test_a_program_ends_with_all_that_it_has_started_when_a_stop_is_requested(tmp_path):
    pids = tmp_path / "pids"
    code = f"""
import os, pathlib, subprocess, sys, time
child = subprocess.Popen(["sleep", "300"])
pathlib.Path({str(tmp_path / "new")!r}).write_text(f"{{os.getpid()}} {{child.pid}}")
os.rename({str(tmp_path / "new")!r}, {str(pids)!r})
time.sleep(300)
"""
    began = time.monotonic()
    command = command_of(tmp_path, code)
    assert scores_unless_stopped("train.validate_command", command, SENTENCES, pids.exists) is None
    assert time.monotonic() - began < 100
    processes = [psutil.Process(int(pid)) for pid in pids.read_text().split() if psutil.pid_exists(int(pid))]
    assert not psutil.wait_procs([p for p in processes if p.status() != psutil.STATUS_ZOMBIE], timeout=20)[1]


def test_a_program_that_the_stop_reaches_first_has_not_failed(tmp_path):
    dying = tmp_path / "dying"
    command = command_of(tmp_path, f"open({str(dying)!r}, 'w').close(); raise SystemExit(1)")
    looks = iter([False])
    assert scores_unless_stopped("x", command, SENTENCES, lambda: next(looks, dying.exists())) is None


def test_a_changed_program_has_another_signature_which_does_not_show_the_command(tmp_path):
    command = command_of(tmp_path, "print(1)") + " --token secret"
    signature = command_signature(command)
    assert re.fullmatch(r"command:[\w.+-]+\|sha256:[0-9a-f]{12}", signature)
    assert command_signature(command) == signature
    assert command_signature(command + "2") != signature
    command_of(tmp_path, "print(2)")
    assert command_signature(command) != signature


def test_a_changed_program_of_the_search_path_has_another_signature(tmp_path, monkeypatch):
    program = tmp_path / "my-metric"
    program.write_text("#!/bin/sh\necho 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    signature = command_signature("my-metric --fast")
    program.write_text("#!/bin/sh\necho 2\n")
    assert command_signature("my-metric --fast") != signature


def test_models_are_no_text_files(tmp_path):
    for name, content in (("model.ckpt", b"a\0b"), ("large", b"a" * 10_000_001), ("settings", b"x: 1\n")):
        (tmp_path / name).write_bytes(content)
    words = [str(tmp_path / name) for name in ("model.ckpt", "large", "settings", "missing")]
    assert file_digests(shlex.join([*words, str(tmp_path), "x" * 5000])) == [hashlib.sha256(b"x: 1\n").hexdigest()]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("no-such-program model", "the program no-such-program does not exist or may not be executed"),
        ("python 'model", r"is no command: No closing quotation"),
        (" ", "is empty; give the command that scores"),
    ],
)
def test_a_missing_program_is_named(command, message):
    with pytest.raises(ValueError, match=message):
        check_command("score.commands.comet", command)


def test_a_run_is_scored_by_the_documented_program_once_for_all_pairs_and_systems(make_run, tmp_path):
    """The reference is the mean over sentences, computed here; resamples are drawn as sacreBLEU draws them."""
    run_dir, calls = make_run(["de-en", "fr-en"]), tmp_path / "calls"
    code = documented() + f"\nwith open({str(calls)!r}, 'a') as file:\n    file.write('x')\n"
    command = command_of(tmp_path, code)
    write_scores(run_dir, metrics=["bleu", "comet"], commands={"comet": command, "metricx": ""}, n_resamples=200)
    assert calls.read_text() == "x"
    with (run_dir / "scores.csv").open(newline="") as file:
        rows = {(row["pair"], row["system"], row["metric"]): row for row in csv.DictReader(file)}
    assert len(rows) == 8
    ratios = {}
    for pair in ("de-en", "fr-en"):
        for system in ("moe", "bilingual"):
            texts = [(line.hypothesis, line.reference) for line in load_translations(run_dir, system, pair)]
            ratios[pair, system] = [100 * min(map(len, line)) / max(map(len, line)) for line in texts]
            row = rows[pair, system, "comet"]
            assert float(row["score"]) == pytest.approx(np.mean(ratios[pair, system]), abs=1e-4)
            values = np.array(ratios[pair, system])
            draws = np.random.default_rng(12345).choice(len(values), size=(200, len(values)), replace=True)
            bounds = percentile_interval(values[draws].mean(axis=1))
            assert (float(row["ci_low"]), float(row["ci_high"])) == pytest.approx(bounds, abs=1e-4)
            assert row["signature"] == f"{command_signature(command)}|bs:200|seed:12345"
    with (run_dir / "significance.csv").open(newline="") as file:
        deltas = {(row["pair"], row["metric"]): float(row["delta"]) for row in csv.DictReader(file)}
    expected = np.mean(ratios["de-en", "moe"]) - np.mean(ratios["de-en", "bilingual"])
    assert deltas["de-en", "comet"] == pytest.approx(expected, abs=1e-4)


def test_the_report_of_several_seeds_has_the_metric_without_an_interval(make_run, tmp_path):
    command, directories = command_of(tmp_path, documented()), []
    for seed in (1, 2):
        config = {"train": {"seed": seed}}
        run_dir = make_run(["de-en"], {"moe": seed / 10, "bilingual": 0.4}, 20, f"s{seed}", config=config)
        directories.append((f"s{seed}", run_dir))
        write_scores(run_dir, metrics=["bleu", "comet"], commands={"comet": command}, n_resamples=20)
    rows = [row for _, run in directories for row in load_scores(run / "scores.csv")]
    mean = np.mean([row.score for row in rows if (row.system, row.metric) == ("moe", "comet")])
    text = write_report(tmp_path / "out", load_results(directories)).read_text(encoding="utf-8")
    assert "COMET" in text
    assert f"{mean:.1f}" in text


def test_a_metric_without_its_command_is_an_error(make_run):
    with pytest.raises(ValueError, match=r"score.commands.metricx is empty"):
        write_scores(make_run(["de-en"]), metrics=["bleu", "metricx"])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a\tb\n", "line 1 of stdin has no source, translation and reference with tabs between them"),
        ("a\tb\tc\n", "model.ckpt does not exist"),
    ],
)
def test_the_command_of_comet_says_what_it_lacks(tmp_path, monkeypatch, capsys, line, message):
    (tmp_path / "stdin").write_text(line)
    with (tmp_path / "stdin").open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert main(["comet", str(tmp_path / "checkpoints" / "model.ckpt")]) == 2
    assert message in capsys.readouterr().err
