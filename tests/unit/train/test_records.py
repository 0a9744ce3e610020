"""Records of a run: removal of old ones when it resumes, wandb's mode, and progress."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from pipeline.config import ROOT
from pipeline.train.config import TrainConfig
from pipeline.train.records import Records, wandb_mode
from pipeline.train.totals import Progress


def records(tmp_path, step):
    return Records(tmp_path, title="t", slot=0, resumed_step=step, wandb="disabled", config={})


def test_resuming_forgets_what_came_after_the_checkpoint(tmp_path):
    with records(tmp_path, 0) as first:
        for step in (1, 2, 3):
            first.write({"event": "train", "step": step})
    with (tmp_path / "metrics.jsonl").open("a") as stream:
        stream.write('{"event": "train", "st')  # killed while writing
    with records(tmp_path, 2) as second:
        second.write({"event": "train", "step": 3, "again": True})
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert lines[-1]["again"]


def test_a_full_disk_loses_no_line(tmp_path, caplog):
    """/dev/full refuses every write with ENOSPC."""
    caplog.set_level("INFO")
    with records(tmp_path, 0) as first, Path("/dev/full").open("wb", buffering=0) as full:
        room = first._stream
        first.write({"event": "train", "step": 1})
        first._stream = full
        first.write({"event": "train", "step": 2})
        first.write({"event": "train", "step": 3})
        with first.tolerating("a table"):
            full.write(b"x")
        first._stream = room
        first.write({"event": "train", "step": 4})
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert caplog.text.count("its lines wait: [Errno 28] No space left on device") == 1
    assert "a table could not be written: [Errno 28]" in caplog.text
    with Path("/dev/full").open("wb", buffering=0) as full, records(tmp_path, 4) as second:
        second._stream = full
        second.write({"event": "train", "step": 5})
    assert "warning: 1 lines of" in caplog.text


def test_wandb_goes_on_under_the_same_id(tmp_path):
    """Offline, the name of the run's directory has the id, and a number if two runs began in one second."""
    for step in (1, 2):
        with Records(tmp_path, title="t", slot=0, resumed_step=step - 1, wandb="offline", config={}) as one:
            one.write({"event": "train", "step": step, "loss": 1.0})
    identity = (tmp_path / "wandb-id").read_text()
    started = [path.name for path in (tmp_path / "wandb").glob("offline-run-*")]
    assert len(identity) == 8
    assert started
    assert len(started) == 2
    assert all(re.fullmatch(rf"offline-run-\d+_\d+-{identity}(-\d+)?", name) for name in started)


def test_tensorboard_shows_every_number_and_forgets_what_was_repeated(tmp_path):
    """TensorBoard's own reader reads the files. The second attempt resumes after step 2."""
    for resumed, steps in ((0, (1, 2, 3)), (2, (3, 4))):
        with records(tmp_path, resumed) as one:
            for step in steps:
                one.write({"event": "train", "step": step, "lr": step + resumed / 8, "pairs": {"de-en": 2.5}})
    output = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert output.Tags()["scalars"] == ["train/lr", "train/pairs/de-en"]
    assert [(e.step, e.value) for e in output.Scalars("train/lr")] == [(1, 1.0), (2, 2.0), (3, 3.25), (4, 4.25)]
    assert [e.value for e in output.Scalars("train/pairs/de-en")] == [2.5] * 4


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_tensorboard_without_room_costs_no_run(tmp_path, caplog):
    """/dev/full refuses every write with ENOSPC."""
    caplog.set_level("INFO")
    with records(tmp_path, 0) as one:
        one.write({"event": "train", "step": 1})
        one._board._writer.flush()
        one._board._writer.file_writer.event_writer._async_writer._writer._writer.filename = "/dev/full"
        for step in range(2, 6):
            one.write({"event": "train", "step": step, "loss": 1.0})
            if one._board is not None:
                with suppress(OSError):  # as its clock does every two minutes
                    one._board._writer.flush()
    assert caplog.text.count("TensorBoard's events end here: [Errno 28]") == 1
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 5


SHOW = """
import sys
from pathlib import Path
from pipeline.train.records import Records
with Records(Path(sys.argv[1]), title="train moe", slot=0, resumed_step=0, wandb="disabled", config={}) as records:
    for step in (1, 2, 3):
        records.progress(step=step, fraction=step / 10, cross_entropy=4.0, tokens_per_second=1234.0)
    records.say("a line that stays")
"""


def test_a_terminal_gets_a_bar_with_rate_and_eta(tmp_path):
    """The terminal is a real pseudo-terminal of 120 columns."""
    reader, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
    subprocess.run([sys.executable, "-c", SHOW, str(tmp_path)], stderr=terminal, cwd=ROOT, check=True, timeout=60)
    os.close(terminal)
    output = os.read(reader, 65536).decode()
    os.close(reader)
    assert "1,234 target tokens/s, ETA " in output
    assert "train moe: a line that stays" in output


@pytest.mark.parametrize("setting", ["offline", "online", "disabled"])
def test_wandb_mode_is_the_setting(setting):
    assert wandb_mode(setting) == setting


def run_code(code, wandb):
    """Run Python code without a terminal. It sees no other variables of wandb than these."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment | wandb,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize(("key", "expected"), [("", "offline"), ("0123456789abcdef0123456789abcdef01234567", "online")])
def test_wandb_is_online_only_for_who_is_logged_in_and_never_asks(tmp_path, key, expected):
    """The process has no terminal, home or configuration. The second one has a key in its environment."""
    code = "from pipeline.train.records import wandb_mode; print(wandb_mode('auto'))"
    result = run_code(code, {"HOME": str(tmp_path), **({"WANDB_API_KEY": key} if key else {})})
    assert result.stdout.strip().splitlines()[-1] == expected, result.stderr


def test_a_wandb_server_that_cannot_be_reached_leaves_an_offline_record(tmp_path):
    """wandb 0.30 keeps the id of a run that it could not start, and would refuse to start it offline."""
    environment = {
        "HOME": str(tmp_path),
        "WANDB_API_KEY": "0123456789abcdef0123456789abcdef01234567",
        "WANDB_BASE_URL": "http://127.0.0.1:9",
        "WANDB_INIT_TIMEOUT": "5",
    }
    code = f"""
from pathlib import Path
from pipeline.train.records import Records
with Records(Path({str(tmp_path)!r}), title="mine", slot=0, resumed_step=0, wandb="auto", config={{}}) as records:
    pass
"""
    result = run_code(code, environment)
    assert result.returncode == 0, result.stderr
    assert "wandb is not reached" in result.stderr
    assert list(tmp_path.glob("wandb/offline-run-*"))


def test_patience_counts_validations_without_a_better_loss():
    config = TrainConfig(max_steps=100, max_tokens=0, learning_rate=1.0, warmup_steps=1, validate_every=1, patience=2)
    progress = Progress()
    for step, loss in enumerate([3.0, 2.0, 2.5, 1.9, 1.9, 2.0], start=1):
        progress.step = step
        assert not progress.finished(config)
        progress.judge(loss)
    assert (progress.best_step, progress.best_loss) == (4, 1.9)
    assert progress.finished(config)
    assert Progress.from_json(json.loads(json.dumps(progress.to_json()))) == progress


def test_budget_is_whichever_ends_first():
    config = TrainConfig(max_steps=10, max_tokens=1000, learning_rate=1.0, warmup_steps=1, validate_every=1)
    assert Progress(step=5, target_tokens=900).fraction(config) == 0.9
    assert Progress(step=10, target_tokens=10).finished(config)
