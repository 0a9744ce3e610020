"""Damaged artifacts and checkpoints are named before anything reads them, and made again on request."""

import json
import logging
import os
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from pipeline.checked_json import dump_checked
from pipeline.dag import artifact as artifacts
from pipeline.dag.artifact import MANIFEST, publish, verify
from pipeline.dag.stage import Stage
from pipeline.dag.stages import MODEL_CLOCKS
from pipeline.dag.store import Store
from pipeline.engine.checkpoint.logical import newest, save
from pipeline.engine.checkpoint.weights import read_state
from pipeline.files import remove_tree
from pipeline.jobs.launch import launch
from pipeline.tasks import run_once
from pipeline.train import retention
from tests.parallel.conftest import make_job


def write(text):
    def run(out: Path) -> None:
        (out / "log").mkdir()
        (out / "log" / "seconds").write_text("1")
        (out / "data.txt").write_text(text)

    return run


def stage(name, run, **inputs):
    return Stage(name=name, version=1, config={}, inputs=inputs, run=run)


def flip(file):
    """Change one bit in the middle of a file, so that its size stays."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def test_a_flipped_bit_is_named_before_a_stage_reads_it_and_the_remedy_works(tmp_path):
    source = Store(tmp_path).get(stage("clean", write("a test set")))
    flip(source.path / "data.txt")
    read = []

    def translate(out: Path) -> None:
        read.append((source.path / "data.txt").read_text())
        (out / "scores").write_text("1")

    later = Store(tmp_path)
    message = rf"artifact clean/{source.key} is damaged: data.txt .* differs .*; delete {source.path} and run again"
    with pytest.raises(ValueError, match=message):
        later.get(stage("translate", translate, test=later.get(stage("clean", write("a test set")))))
    assert read == []
    remove_tree(source.path)
    again = Store(tmp_path)
    again.get(stage("translate", translate, test=again.get(stage("clean", write("a test set")))))
    assert read == ["a test set"]


def test_logs_of_a_stage_may_change(tmp_path):
    source = Store(tmp_path).get(stage("clean", write("a")))
    flip(source.path / "log" / "seconds")
    verify(source)
    Store(tmp_path).get(stage("translate", write("b"), test=source))


def test_every_artifact_is_hashed_once(tmp_path, monkeypatch):
    """The process that makes it hashes it when it is published; another one, before the first stage that reads it."""
    hashed = []
    real = artifacts.file_sha256
    monkeypatch.setattr(artifacts, "file_sha256", lambda path: (hashed.append(path.name), real(path))[1])
    first = Store(tmp_path)
    first.get(stage("one", write("1"), source=first.get(stage("source", write("a")))))
    assert hashed.count("data.txt") == 2  # the files that it made
    hashed.clear()
    second = Store(tmp_path)
    source = second.get(stage("source", write("a")))
    assert hashed == []  # no stage has read it
    second.get(stage("two", write("2"), source=source))
    second.get(stage("three", write("3"), source=source))
    assert hashed.count("data.txt") == 1 + 2


def cut_off(manifest):
    manifest.write_text(manifest.read_text()[:-20])


def other_content(manifest):
    record = json.loads(manifest.read_text())
    record["content"] = record["content"][::-1]
    manifest.write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (Path.unlink, "is missing"),
        (cut_off, "cannot be read"),
        (lambda manifest: manifest.write_bytes(b"\xff" * 100), "cannot be read"),
        (lambda manifest: manifest.write_text("[]"), "cannot be read"),
        (lambda manifest: manifest.write_text("{}"), "cannot be read"),
        (other_content, "differs from what was published"),
    ],
    ids=["deleted", "cut off", "no text", "no object", "empty", "other content"],
)
def test_a_damaged_manifest_is_named_before_its_stage_runs_again(tmp_path, damage, fault):
    """The new result of hours could not be published, because the damaged directory has its name."""
    artifact = Store(tmp_path).get(stage("train", write("a")))
    damage(artifact.path / MANIFEST)
    ran = []
    message = rf"artifact train/{artifact.key} is damaged: {MANIFEST} {fault}.*; delete {artifact.path} and run again"
    for request in (
        lambda: Store(tmp_path).get(stage("train", ran.append)),
        lambda: Store(tmp_path).find("train", artifact.key),
        lambda: Store(tmp_path).get(stage("translate", ran.append, model=artifact)),
    ):
        with pytest.raises(ValueError, match=message):
            request()
    assert ran == []


STATE = {"format": 1, "progress": {"step": 2, "best_loss": 3.25}, "validation": 3.25, "shards": {}}


def test_a_flipped_digit_in_the_state_of_a_checkpoint_is_damage(tmp_path, caplog):
    for step in (1, 2, 3):
        (tmp_path / f"step-{step:08}").mkdir()
        (tmp_path / f"step-{step:08}" / "state.json").write_text(dump_checked(STATE))
    assert read_state(tmp_path / "step-00000003") == STATE
    damaged = tmp_path / "step-00000003" / "state.json"
    damaged.write_text(damaged.read_text().replace("3.25", "1.25", 1))
    with pytest.raises(ValueError, match=r"step-00000003 is damaged: state.json cannot be read: its sha256 is not"):
        read_state(damaged.parent)
    with pytest.raises(ValueError, match=r"step-00000003 is damaged: state.json cannot be read: its sha256 is not"):
        retention.content(damaged.parent)
    caplog.set_level(logging.WARNING)
    assert newest(tmp_path).name == "step-00000002"
    assert "step-00000003 is damaged" in caplog.text
    assert [checkpoint.step for checkpoint in retention.saved(tmp_path)] == [1, 2]


@pytest.mark.parametrize("text", ["", "[]", "12", '{"format": 1, "sha256": "'])
def test_another_text_in_place_of_the_state_is_damage(tmp_path, text):
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(ValueError, match=r"is damaged: state.json cannot be read"):
        read_state(tmp_path)


def test_the_state_of_an_older_version_without_a_checksum_is_read(tmp_path):
    (tmp_path / "state.json").write_text(json.dumps(STATE))
    assert read_state(tmp_path) == STATE


def test_times_are_no_part_of_the_content_but_their_damage_is_noticed(tmp_path):
    def run(seconds, step):
        def write(out: Path) -> None:
            (out / "checkpoints").mkdir()
            values = {"progress": {"step": step, "train_seconds": seconds}}
            (out / "checkpoints" / "state.json").write_text(dump_checked(values))

        return write

    def train(name, seconds, step):
        training = Stage(name="train", version=1, config=name, run=run(seconds, step), clocks=MODEL_CLOCKS)
        return Store(tmp_path).get(training)

    one, slower, longer = train("one", 1.5, 7), train("slower", 2.5, 7), train("longer", 1.5, 8)
    assert one.content == slower.content
    assert one.content != longer.content
    flip(one.path / "checkpoints" / "state.json")
    with pytest.raises(ValueError, match=r"state.json is missing or differs from what was published"):
        verify(one)


def test_two_equal_trainings_have_the_same_content(prepared, tmp_path, monkeypatch):
    """A lost model that is trained again, bit for bit, then leaves all later artifacts valid."""
    monkeypatch.chdir(Path(__file__).resolve().parents[2])
    contents = set()
    for name in ("one", "two"):
        out = tmp_path / f"{name}.partial"
        job = make_job(prepared, out, processes=1, ep=1, max_steps=2)
        launch("pipeline.train", asdict(job), directory=job.log, processes=1, threads=1, title=name)
        contents.add(publish(out, tmp_path / name, {"stage": "train"}, MODEL_CLOCKS))
    one, two = (next((tmp_path / name).rglob("state.json")).read_text() for name in ("one", "two"))
    assert one != two  # their times differ
    assert len(contents) == 1


@pytest.fixture
def synced(monkeypatch):
    """The inodes that were synced to the disk. A rename checks that it publishes no others."""
    inodes, published = set(), []
    real_sync, real_rename = os.fsync, Path.rename

    def fsync(descriptor):
        inodes.add(os.fstat(descriptor).st_ino)
        real_sync(descriptor)

    def rename(path, target):
        if path.suffix == ".partial":
            lost = [file for file in (path, *path.rglob("*")) if file.stat().st_ino not in inodes]
            assert lost == []
            published.append(Path(target))
            inodes.discard(path.parent.stat().st_ino)
        return real_rename(path, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", rename)
    yield inodes
    assert published
    for path in published:
        assert path.parent.stat().st_ino in inodes, "the rename is not synced"


def test_a_power_cut_after_an_artifact_was_published_loses_nothing(tmp_path, synced):
    Store(tmp_path).get(stage("train", write("a")))


def test_a_power_cut_after_a_checkpoint_was_published_loses_nothing(tmp_path, synced):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        save(tmp_path / "step-00000001", {"model.x": torch.ones(2)}, {})
    finally:
        dist.destroy_process_group()


def test_a_file_system_that_cannot_sync_directories_is_no_error(tmp_path, monkeypatch):
    def refuse(descriptor):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "fsync", refuse)
    assert Store(tmp_path).get(stage("train", write("a"))).path.exists()


def test_a_power_cut_after_a_task_was_finished_loses_nothing(tmp_path, synced):
    def work(out: Path) -> int:
        (out / "rows.arrow").write_bytes(b"rows")
        return 1

    assert run_once(tmp_path / "0-1", work) == 1
