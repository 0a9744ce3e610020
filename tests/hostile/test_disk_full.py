"""Processes on a full disk continue, and an error is shown although no file can store it."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from pipeline.jobs.launch import JobFailed, launch, read_reports
from pipeline.jobs.memory_file import memory_file
from tests.parallel.conftest import Outcome, make_job

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """A real file system of 12 MB."""
    monkeypatch.chdir(ROOT)
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "none", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def work_on(disk, **values):
    job = {"heartbeat": 1, "fails": -1, **values}
    launch("tests.hostile.disk_worker", job, directory=disk / "log", processes=2, threads=1, title="full")


def is_full(disk):
    output = subprocess.run(["df", "--output=avail", disk], capture_output=True, text=True, check=True).stdout
    return output.split()[1] == "0"


@pytest.mark.quiet
def test_processes_on_a_full_disk_know_that_all_are_alive(disk):
    """They run for six limits of the heartbeat; a file on the disk could store the beats of one."""
    work_on(disk, seconds=6)
    assert is_full(disk)


@pytest.mark.quiet
def test_an_error_that_a_process_cannot_write_is_shown(disk):
    with pytest.raises(JobFailed, match=r"^full: process 1 of 2 failed: an error of its own$"):
        work_on(disk, seconds=1, fails=1)
    assert is_full(disk)
    assert not (disk / "log" / "rank-1.error").exists()


def test_a_full_disk_costs_training_a_checkpoint_and_the_warning_says_that_none_exists(prepared, disk, capfd):
    job = make_job(prepared, disk, processes=2, ep=2, max_steps=6, validate_every=3)
    launch(
        "tests.hostile.disk_training_worker", asdict(job), directory=job.log, processes=2, threads=1, title=job.title
    )
    outcome = Outcome(disk)
    assert [record["step"] for record in outcome.records("train")] == [1, 2, 3, 4, 5, 6]
    assert [record["checkpoint"] for record in outcome.records("checkpoint_failed")] == ["step-00000003"]
    assert outcome.checkpoint().name == "step-00000006"
    errors = capfd.readouterr().err
    assert "warning: checkpoint step-00000003 was not written, and there is none before it: " in errors
    assert "No space left on device" in errors


HEARTBEAT = """
import sys, time
from torch.distributed import FileStore
from pipeline.jobs.heartbeat import Heartbeat
from pipeline.jobs.rendezvous import World

class OnDisk(FileStore):
    full = False
    def clone(self):
        return self
    def add(self, key, number):
        if self.full:
            raise RuntimeError("write: No space left on device")
        return super().add(key, number)

store = OnDisk(sys.argv[1], 2)
world = World(rank=0, hosts=["here", "here"], store=store, address="")
heartbeat = Heartbeat(world, limit=1, report=lambda why: print(why, flush=True))
store.add("beat/1", 1)
OnDisk.full = True
time.sleep(3)
print("alive", flush=True)
OnDisk.full = False
time.sleep(30)
"""


def test_a_store_that_cannot_write_beats_reports_no_lost_process(tmp_path):
    """The disk is full for three limits. Then it has space again, and a silent process is reported as usual."""
    command = [sys.executable, "-c", HEARTBEAT, str(tmp_path / "store")]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    alive, lost = result.stdout.splitlines()
    assert alive == "alive"
    assert lost.startswith("process 1 of 2 has been silent for ")
    assert result.returncode == 1


def test_reports_are_read_in_the_order_in_which_processes_failed(tmp_path):
    """The first failure is the first report, independent of the times of files."""
    memory = tmp_path / "reports"
    memory.write_text("".join(json.dumps(line) + "\n" for line in ([1, "first"], [0, "then\nthis"])))
    (tmp_path / "rank-0.error").write_text("then this")
    assert read_reports(tmp_path, memory) == [(1, "first"), (0, "then\nthis")]
    memory.write_text("")
    assert read_reports(tmp_path, memory) == [(0, "then this")]


def test_without_files_in_memory_the_given_path_is_used(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with memory_file(tmp_path / "store") as file:
        assert (file.path, file.descriptors) == (tmp_path / "store", ())
        file.path.write_text("x")
    assert list(tmp_path.iterdir()) == []
