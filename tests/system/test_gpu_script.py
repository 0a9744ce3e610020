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
PIECE = 45


def run(*words, **settings):
    environment = {**os.environ, "PYTHON": sys.executable, **settings}
    command = ["bench/gpu.sh", "experiment", *words]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device_nothing_is_done():
    done = run()
    assert done.returncode == 1
    assert done.stdout == f"error: {sys.executable} finds no torch with a CUDA device; nothing was done\n"


@pytest.mark.long
def test_an_experiment_is_done_in_pieces(tmp_path):
    (tmp_path / "out").mkdir()
    settings = {"RUNTIME": "cpu", "EXPERIMENT": "", "NAME": "tiny", "PIECE": str(PIECE), "OUT": f"{tmp_path}/out"}
    pieces = []
    while not pieces or "all is done" not in pieces[-1]:
        assert len(pieces) < 20, pieces
        done = run(*TINY, PLACE=str(tmp_path), **settings)
        assert done.returncode == 0, done.stderr
        pieces.append(done.stdout.splitlines()[-1])
    assert len(pieces) > 1
    assert all(piece.startswith("this piece ended in order after ") for piece in pieces[:-1])
    parts = sorted((tmp_path / "out").glob("tiny.tar.gz.*"))
    with tarfile.open(fileobj=BytesIO(b"".join(part.read_bytes() for part in parts))) as archive:
        names = archive.getnames()
    assert len([name for name in names if re.fullmatch("tiny/[^/]+/scores.csv", name)]) == 2
    assert "tiny/report.html" in names
