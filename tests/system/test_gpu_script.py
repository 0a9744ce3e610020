"""`bench/gpu.sh experiment`: a sweep in pieces, each of which ends by itself; here on the processor."""

import os
import re
import subprocess
import sys
import tarfile
from io import BytesIO

import pytest
import torch

from pipeline.config import ROOT

TINY = [
    "recipes=smoke",
    "train.seed=1,2",
    "compare=[]",
    "train.max_tokens=40000",
    "baselines.tiers=[]",
    "decode.beam=1",
    "decode.max_length_ratio=0.5",
    "score.resamples=100",
]
LIMIT = 95  # seconds; a piece is asked to stop 50 before


def run(*words, **settings):
    environment = {**os.environ, "PYTHON": sys.executable, **settings}
    command = ["bench/gpu.sh", "experiment", *words]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device_nothing_is_done():
    process = run()
    assert process.returncode == 1
    assert process.stdout == f"error: {sys.executable} finds no torch with a CUDA device; nothing was done\n"


@pytest.mark.parametrize("limit", ["70", "9m", "-1"])
def test_a_limit_that_leaves_no_time_is_an_error(limit):
    process = run(RUNTIME="cpu", LIMIT=limit)
    assert process.returncode == 1
    assert process.stderr == (
        f"error: LIMIT={limit} is too short or no number; give the seconds that a command may take, more than 70\n"
    )


def fake_python(directory):
    """Write a python that prints the time that `timeout` gives it, which is its parent process, and does nothing."""
    script = directory / "python"
    script.write_text("#!/bin/sh\ntr '\\0' ' ' < /proc/$PPID/cmdline\necho\n")
    script.chmod(0o755)
    return str(script)


@pytest.mark.parametrize(
    ("what", "limits", "expected"),
    [
        ("experiment", {}, ["490"]),
        ("plan", {}, ["200", "330"]),
        ("train", {}, ["470"]),
        ("experiment", {"LIMIT": "3600"}, ["3550"]),
        ("plan", {"LIMIT": "3600"}, ["1333", "2200"]),
        ("train", {"LIMIT": "3600"}, ["3530"]),
    ],
)
def test_no_command_takes_longer_than_the_limit(tmp_path, what, limits, expected):
    environment = {**os.environ, "RUNTIME": "cpu", "PLACE": str(tmp_path), "PYTHON": fake_python(tmp_path), **limits}
    process = subprocess.run(["bench/gpu.sh", what], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert re.findall(r"^timeout (?:--\S+ )*(\d+) ", process.stdout, flags=re.MULTILINE) == expected


@pytest.mark.long
def test_an_experiment_is_done_in_pieces(tmp_path):
    (tmp_path / "out").mkdir()
    settings = {
        "RUNTIME": "cpu",
        "EXPERIMENT": "",
        "NAME": "tiny",
        "LIMIT": str(LIMIT),
        "PART": "100K",
        "OUT": f"{tmp_path}/out",
    }
    pieces = []
    while not pieces or "all is done" not in pieces[-1]:
        assert len(pieces) < 20, pieces
        process = run(*TINY, PLACE=str(tmp_path), **settings)
        assert process.returncode == 0, process.stderr
        pieces.append(process.stdout.splitlines()[-1])
    assert len(pieces) > 1
    assert all(piece.startswith("this piece ended in order after ") for piece in pieces[:-1])
    parts = sorted((tmp_path / "out").glob("tiny.tar.gz.*"))
    assert len(parts) > 1
    assert all(part.stat().st_size == 100 * 1024 for part in parts[:-1])
    with tarfile.open(fileobj=BytesIO(b"".join(part.read_bytes() for part in parts))) as archive:
        names = archive.getnames()
    assert len([name for name in names if re.fullmatch("tiny/[^/]+/scores.csv", name)]) == 2
    assert "tiny/report.html" in names
