"""`bench/gpu.sh`: pieces of work, each of which ends by itself and is done once; here on the processor."""

import os
import re
import subprocess
import sys
import tarfile
from io import BytesIO

import pytest
import torch

from pipeline.config import ROOT
from pipeline.jobs.launch import GRACE
from pipeline.sweep.job import ABOVE_GRACE

PIECES = ("verify", "tests", "split", "train", "moe", "decode", "plan", "demo", "experiment")
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
LIMIT = 175  # seconds; a piece is asked to stop 130 before


def run(*words, **settings):
    environment = {**os.environ, "PYTHON": sys.executable, **settings}
    command = ["bench/gpu.sh", "experiment", *words]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device_nothing_is_done():
    process = run()
    assert process.returncode == 1
    assert process.stdout == f"error: {sys.executable} finds no torch with a CUDA device; nothing was done\n"


@pytest.mark.parametrize("limit", ["135", "9m", "-1"])
def test_a_limit_that_leaves_no_time_is_an_error(limit):
    process = run(RUNTIME="cpu", LIMIT=limit)
    assert process.returncode == 1
    assert process.stderr == (
        f"error: LIMIT={limit} is too short or no number; give the seconds that a command may take, more than 135\n"
    )


def test_a_piece_that_does_not_exist_is_an_error():
    process = subprocess.run(["bench/gpu.sh", "--experts"], cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 1
    assert process.stderr == f"error: --experts is no piece; there are {' '.join(PIECES)}\n"


def fake_python(directory):
    """Write a python that prints its arguments and the time that `timeout` gives it, and does nothing.

    `timeout` is its parent process. The python fails if its arguments match $FAILS, and knows a device's name.
    """
    script = directory / "python"
    script.write_text(
        "#!/bin/bash\n"
        "if [[ $* == *device_name* ]]; then echo a-device; exit; fi\n"
        'tr "\\0" " " < /proc/$PPID/cmdline; echo\n'
        'echo "python $*"\n'
        "[[ -z ${FAILS:-} || ! $* =~ $FAILS ]]\n"
    )
    script.chmod(0o755)
    return str(script)


def faked(tmp_path, *words, **settings):
    """Run the script with the python that does nothing."""
    environment = {**os.environ, "RUNTIME": "cpu", "PLACE": str(tmp_path), "OUT": str(tmp_path / "out")}
    environment |= {"PYTHON": fake_python(tmp_path), "WHEELS": str(tmp_path / "wheels"), **settings}
    return subprocess.run(["bench/gpu.sh", *words], cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("what", "limits", "expected"),
    [
        ("experiment", {}, [(125, 410)]),
        ("demo", {}, [(125, 410)]),
        ("plan", {}, [(65, 180), (65, 295)]),
        ("train", {}, [(65, 470)]),
        ("verify", {}, [(65, 470)]),
        ("experiment", {"LIMIT": "3600"}, [(125, 3470)]),
        ("plan", {"LIMIT": "3600"}, [(65, 1200), (65, 1995)]),
        ("split", {"LIMIT": "3600"}, [(65, 3530)]),
    ],
)
def test_no_command_takes_longer_than_the_limit(tmp_path, what, limits, expected):
    process = faked(tmp_path, what, **limits)
    assert process.returncode == 0, process.stderr
    commands = re.findall(r"^timeout .*--kill-after=(\d+) (\d+) ", process.stdout, flags=re.MULTILINE)
    times = [(int(grace), int(seconds)) for grace, seconds in commands]
    assert times == expected
    assert sum(seconds for _, seconds in times) + times[-1][0] <= int(limits.get("LIMIT", 540))


def test_nothing_is_killed_while_its_own_processes_have_time_to_save(tmp_path):
    """A launcher waits for a run, which waits for its processes."""
    graces = {}
    for piece in ("experiment", "train"):
        (graces[piece],) = re.findall(r"--kill-after=(\d+)", faked(tmp_path, piece).stdout)
    assert int(graces["experiment"]) > GRACE + 2 * ABOVE_GRACE
    assert int(graces["train"]) > GRACE


def test_a_wheel_of_torch_is_left_out_on_a_gpu_with_a_message(tmp_path):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    torch_wheel, other = wheels / "torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl", wheels / "torchlike-1-any.whl"
    for wheel in (torch_wheel, other):
        wheel.touch()
    on_gpu, on_cpu = (faked(tmp_path, "train", RUNTIME=runtime).stdout for runtime in ("gpu", "cpu"))
    assert f"{torch_wheel} is left out: {tmp_path}/python has a torch with CUDA" in on_gpu
    assert re.findall(r"^python -m pip .* --target \S+ (.*)$", on_gpu, re.MULTILINE) == [str(other)]
    assert re.findall(r"^python -m pip .* --target \S+ (.*)$", on_cpu, re.MULTILINE) == [f"{torch_wheel} {other}"]
    torch_wheel.unlink()
    other.unlink()
    assert "pip" not in faked(tmp_path, "train").stdout


def test_without_a_piece_all_run_by_value_and_once(tmp_path):
    process = faked(tmp_path, FAILS="bench.split")
    about = tmp_path / "out" / "gpu-a-device"
    assert process.returncode == 1
    assert re.findall(r"^(\w+): begins with \d+ s left$", process.stdout, re.MULTILINE) == list(PIECES)
    assert f"split: failed with exit code 1, see {about}/split.failed" in process.stdout
    assert {path.name for path in about.iterdir()} == {
        "split.failed" if piece == "split" else f"{piece}.txt" for piece in PIECES
    }
    assert "python -m pipeline verify device=cpu worlds=[1]" in (about / "verify.txt").read_text()
    assert f"python -m bench.train --device cpu --out {tmp_path}/out" in (about / "train.txt").read_text()
    process = faked(tmp_path)
    assert process.returncode == 0
    assert re.findall(r"^(\w+): begins", process.stdout, re.MULTILINE) == ["split"]
    assert process.stdout.endswith(f"all pieces are done, in {about}\n")


def test_a_piece_begins_only_with_time_enough_and_after_those_that_never_failed(tmp_path):
    about = tmp_path / "out" / "gpu-a-device"
    about.mkdir(parents=True)
    (about / "verify.failed").touch()
    process = faked(tmp_path, LIMIT="200")
    assert process.returncode == 0
    assert re.findall(r"^(\w+) is next, and \d+ s are too few for it; ", process.stdout, re.MULTILINE) == ["tests"]


def test_a_piece_that_stopped_in_order_is_not_done(tmp_path):
    about = tmp_path / "out" / "gpu-a-device"
    python = tmp_path / "stopping"
    python.mkdir()
    settings = {"PYTHON": fake_python(python)}
    script = python / "python"
    script.write_text(script.read_text() + "[[ $* != *sweep* ]] || exit 75\n")
    process = faked(tmp_path, **settings)
    assert process.returncode == 0
    assert "this piece ended in order after" in process.stdout.splitlines()[-1]
    assert (about / "experiment.partial").exists()
    assert re.findall(r"^(\w+): begins", faked(tmp_path).stdout, re.MULTILINE) == ["experiment"]


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
