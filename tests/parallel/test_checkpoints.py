"""Saves in the background, retention, and the average of checkpoints."""

import json
import shutil
import subprocess
import threading
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from safetensors.numpy import load_file

from pipeline.decode.checkpoints import choose
from pipeline.decode.config import DecodeConfig
from pipeline.decode.model import load_model
from pipeline.engine.checkpoint import background_save
from pipeline.engine.checkpoint.logical import newest, save
from pipeline.engine.checkpoint.weights import verify
from pipeline.jobs.launch import JobFailed, launch
from pipeline.train.config import CheckpointConfig
from pipeline.vocab.tokenizer import Vocabulary
from tests.parallel.conftest import MODEL, Outcome, make_job


def test_a_checkpoint_written_beside_training_is_that_of_its_step(run_job, kept_three):
    """The reference is the last checkpoint of a run of three steps, which was saved after training.

    Its validation has already taken the sums of usage from the window.
    """
    stopped = run_job(processes=2, ep=2, max_steps=3)
    actual, expected = kept_three.tensors("step-00000003"), stopped.tensors()
    assert actual.keys() == expected.keys()
    assert actual.pop("window.usage").sum() > expected.pop("window.usage").sum() == 0
    for name, tensor in expected.items():
        assert torch.equal(actual[name], tensor), name


def test_the_rules_decide_what_stays(kept_three):
    root = kept_three.checkpoint().parent
    assert sorted(path.name for path in root.glob("step-*")) == [f"step-{n:08}" for n in (3, 4, 6, 8)]
    marks = json.loads((root / "best.json").read_text())
    assert marks["last_n"] == [f"step-{n:08}" for n in (8, 6, 4)]
    losses = {r["step"]: r["cross_entropy"] for r in kept_three.records("validation")}
    assert marks["best_k"] == [f"step-{n:08}" for n in sorted(losses, key=lambda n: losses[n])[:2]]
    assert (marks["best"], marks["last"]) == (marks["best_k"][0], "step-00000008")


def test_each_process_writes_a_shard_and_no_tensor_twice(kept_three):
    verify(kept_three.checkpoint(), whole=True)
    files = {p.name: load_file(p) for p in sorted(kept_three.checkpoint().glob("*.safetensors"))}
    assert list(files) == [f"{kind}-0000{process}.safetensors" for kind in ("resume", "shard") for process in (1, 2)]
    assert {key.partition(".")[0] for name, part in files.items() if name < "s" for key in part} == {
        "exp_avg",
        "exp_avg_sq",
        "window",
    }
    shards = [
        {**files[f"resume-0000{process}.safetensors"], **files[f"shard-0000{process}.safetensors"]}
        for process in (1, 2)
    ]
    twice = shards[0].keys() & shards[1].keys()
    assert twice
    assert all(".experts." in name for name in twice)  # cut over the processes, two experts each
    assert {len(shard[name]) for shard in shards for name in twice} == {2}


@pytest.mark.parametrize(
    ("ep", "settings"),
    [
        (2, {}),
        (1, {"layout": MODEL, "runtime": {"mp": 2, "zero_stage": 2}, "optimizer": "adafactor", "ema": 0.5}),
    ],
)
def test_each_process_stages_what_it_writes_and_no_more(prepared, tmp_path, ep, settings):
    """The processes get parts of about the same size, though one alone holds the sums of the window."""
    job = make_job(prepared, tmp_path, processes=2, ep=ep, max_steps=1, **settings)
    launch("tests.parallel.staging_worker", asdict(job), directory=job.log, processes=2, threads=1, title=job.title)
    outcome = Outcome(tmp_path)
    staged = [json.loads((job.log / f"staged-{rank}.jsonl").read_text()) for rank in range(2)]
    for number, noted in enumerate(staged, start=1):
        files = [load_file(p) for p in outcome.checkpoint().glob(f"*-0000{number}.safetensors")]
        assert noted["checkpoint"] == outcome.checkpoint().name
        assert noted["tensors"] == sum(map(len, files))
        assert noted["bytes"] == sum(part.nbytes for file in files for part in file.values())
    whole = sum(tensor.nbytes for tensor in outcome.tensors().values())
    assert sum(noted["bytes"] for noted in staged) == whole
    assert max(noted["bytes"] for noted in staged) < 0.51 * whole


def test_decoding_needs_none_of_what_only_training_reads(prepared, kept_three, tmp_path):
    """Without these files there is nothing to hash, and a changed one is noticed before training continues from it."""
    root = tmp_path / "checkpoints"
    shutil.copytree(kept_three.checkpoint().parent, root)
    vocabulary = Vocabulary.load(Path(prepared.vocabulary))
    for checkpoint in root.glob("step-*"):
        for shard in checkpoint.glob("resume-*"):
            shard.unlink()
    model = load_model(root, vocabulary, longest=20, config=decoding(), device=torch.device("cpu"))
    best = kept_three.tensors(json.loads((root / "best.json").read_text())["best"])
    assert all(torch.equal(p, best[f"model.{name}"]) for name, p in model.named_parameters())
    with pytest.raises(ValueError, match=r"is damaged: resume-00001.safetensors is missing.*there is no older one"):
        newest(root)


def decoding(**changes):
    return DecodeConfig(beam=2, length_penalty=1.0, **changes)


@pytest.mark.parametrize(("rule", "steps"), [("last", (8, 6, 4)), ("best", (8, 6))])
def test_decoding_takes_the_mean_of_checkpoints(prepared, kept_three, rule, steps):
    """The reference is numpy's mean in float64. float32 rounds to 6e-8 of the largest value."""
    config = decoding(average=len(steps), average_of=rule)
    root = kept_three.checkpoint().parent
    chosen = [path.name for path in choose(root, config)]
    assert set(chosen) == {f"step-{n:08}" for n in steps}
    vocabulary = Vocabulary.load(Path(prepared.vocabulary))
    model = load_model(root, vocabulary, longest=20, config=config, device=torch.device("cpu"))
    tensors = [kept_three.tensors(name) for name in chosen]
    for name, parameter in model.named_parameters():
        values = np.stack([t[f"model.{name}"].double().numpy() for t in tensors])
        largest = float(np.abs(values).max())
        np.testing.assert_allclose(parameter.detach().numpy(), values.mean(axis=0), atol=3e-7 * largest, rtol=0)
        assert largest == 0 or not np.array_equal(values[0], values[1]) or "bias" in name, name


def test_the_best_alone_is_taken_exactly(prepared, kept_three):
    root = kept_three.checkpoint().parent
    vocabulary = Vocabulary.load(Path(prepared.vocabulary))
    model = load_model(root, vocabulary, longest=20, config=decoding(), device=torch.device("cpu"))
    best = kept_three.tensors(json.loads((root / "best.json").read_text())["best"])
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, best[f"model.{name}"]), name


def test_averaging_more_than_was_kept_is_an_error(kept_three):
    with pytest.raises(ValueError, match=r"decode.average=4: of the last checkpoints .* has 3; lower it"):
        choose(kept_three.checkpoint().parent, decoding(average=4))


def test_resuming_keeps_what_was_kept(run_job):
    keep = CheckpointConfig(best_k=1, last_n=2, every_n=2)
    first = run_job(processes=1, ep=1, max_steps=3, checkpoints=keep)
    run_job(processes=1, ep=1, max_steps=5, into=first, checkpoints=keep)
    left = sorted(path.name for path in first.checkpoint().parent.glob("step-*"))
    assert left == [f"step-{n:08}" for n in (2, 4, 5)]


@pytest.fixture
def world_of_one(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("world_of_one")
def test_nobody_waits_for_the_disk_until_asked_to(tmp_path, monkeypatch):
    """The disk is slow, and then works, is full, or fails in another way."""
    go_on, outcome = threading.Event(), []

    def write(*_args, **_kwargs):
        go_on.wait(60)
        if outcome:
            raise outcome[0]

    monkeypatch.setattr(background_save, "save", write)
    saving = background_save.BackgroundSave()

    def start():
        go_on.clear()
        saving.start(tmp_path / "step-1", [("model.x", torch.ones(2))], {}, lambda: None)
        assert saving.collect(wait=False) is None
        with pytest.raises(AssertionError, match="a save is in flight"):
            saving.start(tmp_path / "step-2", [], {}, lambda: None)
        go_on.set()

    start()
    assert saving.collect(wait=True) is None
    outcome.append(OSError(28, "No space left on device"))
    start()
    assert saving.collect(wait=True) is outcome[0]
    assert saving.collect(wait=True) is None  # reported only once
    outcome[0] = RuntimeError("connection closed by peer")
    start()
    with pytest.raises(RuntimeError, match="closed by peer"):
        saving.collect(wait=True)


@pytest.mark.usefixtures("world_of_one")
def test_a_save_that_fails_half_way_leaves_nothing_behind(tmp_path, monkeypatch):
    (tmp_path / "step-00000002.partial").mkdir()  # left by a crash
    (tmp_path / "step-00000002.partial" / "shard-00009.safetensors").write_bytes(b"x")
    tensors = {"model.x": torch.arange(6.0).view(2, 3)}

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("pipeline.engine.checkpoint.shard_writer.os.fsync", full)
        with pytest.raises(OSError, match=r"No space left on device: '.*step-00000002'"):
            save(tmp_path / "step-00000002", tensors, {})
    assert not list(tmp_path.glob("step-*"))
    save(tmp_path / "step-00000002", tensors, {"x": 1})
    assert newest(tmp_path) == tmp_path / "step-00000002"
    written = load_file(next((tmp_path / "step-00000002").glob("*.safetensors")))
    np.testing.assert_array_equal(written["model.x"], tensors["model.x"].numpy())


def test_a_disk_that_is_full_and_then_is_not(run_job, tmp_path):
    """A real disk of 12 MB is filled up to 64 kB. Training ends with an error, and continues once there is space."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "none", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        outcome = run_job(processes=1, ep=1, max_steps=1, into=Outcome(disk))
        filler = disk / "filler"
        room = subprocess.run(["df", "--output=avail", "-B1", str(disk)], capture_output=True, text=True).stdout
        filler.write_bytes(b"0" * (int(room.split()[1]) - 65536))
        with pytest.raises(JobFailed, match="No space left on device"):
            run_job(processes=1, ep=1, max_steps=3, validate_every=2, into=outcome)
        assert [r["checkpoint"] for r in outcome.records("checkpoint_failed")] == ["step-00000002"]
        assert outcome.checkpoint().name == "step-00000001"
        filler.unlink()
        run_job(processes=1, ep=1, max_steps=3, validate_every=2, into=outcome)
        assert [r["step"] for r in outcome.records("train")] == [1, 2, 3]
        assert outcome.checkpoint().name == "step-00000003"
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)
