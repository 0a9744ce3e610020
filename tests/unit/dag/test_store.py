"""Stages: keys, reuse, resuming, and what a failure leaves."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pipeline.checked_json import dump_checked
from pipeline.dag.artifact import MANIFEST, Artifact
from pipeline.dag.stage import MODEL_CLOCKS, Stage
from pipeline.dag.store import Store
from pipeline.files import check_free, write_atomically


def stage(run, *, name="count", config=None, inputs=None, **options):
    return Stage(name=name, version=1, config=config or {"x": 1}, inputs=inputs or {}, run=run, **options)


def write(text):
    def run(out: Path) -> None:
        (out / "data.txt").write_text(text)

    return run


def test_same_key_runs_once(tmp_path):
    store = Store(tmp_path)
    first = store.get(stage(write("a")))
    again = store.get(stage(write("b")))
    assert again == first
    assert (first.path / "data.txt").read_text() == "a"
    assert (store.ran, store.reused) == (["count"], {f"count/{first.key}"})


def test_a_published_artifact_is_found_by_its_key(tmp_path):
    store = Store(tmp_path)
    artifact = store.get(stage(write("a")))
    assert store.find("count", artifact.key) == artifact
    with pytest.raises(ValueError, match=r"artifact count/nothing is not in .*set runtime.artifacts"):
        store.find("count", "nothing")


@pytest.mark.parametrize(
    "other",
    [
        {"name": "other"},
        {"config": {"x": 2}},
        {"inputs": {"in": Artifact(stage="s", key="k", path=Path(), content="c2")}},
    ],
)
def test_key_depends_on_name_config_and_inputs(other):
    base = {"inputs": {"in": Artifact(stage="s", key="k", path=Path(), content="c1")}}
    assert stage(write(""), **base).key() != stage(write(""), **{**base, **other}).key()


def test_key_depends_on_the_content_of_an_input_not_on_how_it_was_made(tmp_path):
    store = Store(tmp_path)
    one, two = store.get(stage(write("same"), config={"x": 1})), store.get(stage(write("same"), config={"x": 2}))
    assert one.key != two.key
    assert stage(write(""), inputs={"in": one}).key() == stage(write(""), inputs={"in": two}).key()


def test_log_is_not_content(tmp_path):
    def logging_run(seconds):
        def run(out: Path) -> None:
            (out / "log").mkdir()
            (out / "log" / "times").write_text(seconds)
            (out / "data").write_text("same")

        return run

    store = Store(tmp_path)
    one = store.get(stage(logging_run("1"), config={"x": 1}))
    two = store.get(stage(logging_run("2"), config={"x": 2}))
    assert one.content == two.content


def trained(moments):
    """Return a stage that leaves a checkpoint like training's, with these moments of the optimizer."""

    def run(out: Path) -> None:
        checkpoint = out / "checkpoints" / "step-00000001"
        checkpoint.mkdir(parents=True)
        (checkpoint / "shard-00001.safetensors").write_bytes(b"weights")
        (checkpoint / "resume-00001.safetensors").write_bytes(moments)
        sha256 = {"resume-00001.safetensors": hashlib.sha256(moments).hexdigest()}
        (checkpoint / "state.json").write_text(dump_checked({"step": 1, "resume_shards": sha256}))

    return stage(run, name="train", config={"moments": str(moments)}, clocks=MODEL_CLOCKS)


def test_a_decode_key_does_not_depend_on_moments_and_nobody_reads_them_again(tmp_path):
    """Weights are hashed as before. An artifact in which a file of moments is damaged or lost is whole."""
    one, two = (Store(tmp_path).get(trained(moments)) for moments in (b"moments", b"others"))
    keys = {stage(write("a"), name="translate", inputs={"model": model}).key() for model in (one, two)}
    assert (one.key != two.key, len(keys)) == (True, 1)
    checkpoint = one.path / "checkpoints" / "step-00000001"
    (checkpoint / "resume-00001.safetensors").write_bytes(b"damaged, and of another size")
    (two.path / "checkpoints" / "step-00000001" / "resume-00001.safetensors").unlink()
    for model in (one, two):
        store = Store(tmp_path)
        assert store.get(trained(b"moments" if model is one else b"others")) == model
        store.get(stage(write("a"), name="translate", config={"of": model.key}, inputs={"model": model}))
        assert store.ran == ["translate"]
    (checkpoint / "shard-00001.safetensors").write_bytes(b"wiehgts")
    with pytest.raises(ValueError, match=r"checkpoints/step-00000001/shard-00001.safetensors is missing or differs"):
        Store(tmp_path).get(stage(write("a"), name="translate", config={"of": "anew"}, inputs={"model": one}))


def fail_half_way(out: Path) -> None:
    (out / "half").write_text("half")
    raise RuntimeError("interrupted")


@pytest.mark.parametrize("resumable", [True, False])
def test_a_failure_leaves_the_partial_and_publishes_nothing(tmp_path, resumable):
    store = Store(tmp_path)
    with pytest.raises(RuntimeError, match="interrupted"):
        store.get(stage(fail_half_way, resumable=resumable))
    (partial,) = (tmp_path / "count").glob("*.partial")
    assert (partial / "half").exists()
    names = []
    artifact = store.get(
        stage(lambda out: (names.append((out / "half").exists()), write("done")(out)), resumable=resumable)
    )
    assert names == [resumable]
    assert (artifact.path / "data.txt").read_text() == "done"
    assert not partial.exists()


def test_disk_full_keeps_the_partial_and_the_old_artifact(tmp_path):
    """/dev/full gives the real error of a full disk."""
    store = Store(tmp_path)
    old = store.get(stage(write("old")))

    def fill(out: Path) -> None:
        (out / "kept").write_text("kept")
        (out / "big").symlink_to("/dev/full")
        (out / "big").write_text("x" * 100000)

    with pytest.raises(OSError, match="No space left"):
        store.get(stage(fill, config={"x": 2}))
    assert (old.path / "data.txt").read_text() == "old"
    (partial,) = (tmp_path / "count").glob("*.partial")
    assert (partial / "kept").read_text() == "kept"


def test_replacing_a_file_on_a_full_disk_keeps_the_old_one(tmp_path):
    target = tmp_path / "state"
    target.write_text("old")
    (tmp_path / "state.tmp").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        write_atomically(target, "new" * 10000)
    assert target.read_text() == "old"


def test_a_damaged_artifact_is_noticed(tmp_path):
    store = Store(tmp_path)
    artifact = store.get(stage(write("abc")))
    (artifact.path / "data.txt").write_text("abcd")  # files below log/ may come and go
    with pytest.raises(ValueError, match=r"data.txt is missing or has another size; delete"):
        store.get(stage(write("abc")))


def test_an_unwritable_store_is_an_error_before_work(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"cannot write to .*runtime.artifacts"):
        Store(tmp_path / "file").get(stage(write("a")))


def test_work_that_will_not_fit_is_refused_before_it_starts(tmp_path):
    check_free(tmp_path, 1000, "train")
    with pytest.raises(ValueError, match=r"train needs about .* MB of disk .* are free; make room"):
        check_free(tmp_path, 10**18, "train")


def test_a_stage_that_writes_nothing_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="wrote nothing"):
        Store(tmp_path).get(stage(lambda out: None))


def test_manifest_says_what_the_artifact_rests_on(tmp_path):
    store = Store(tmp_path)
    source = store.get(stage(write("a"), name="source"))
    artifact = store.get(stage(write("b"), inputs={"in": source}))
    manifest = json.loads((artifact.path / MANIFEST).read_text())
    assert manifest["inputs"]["in"] == {"stage": "source", "key": source.key, "content": source.content}
    assert manifest["config"] == {"x": 1}


def test_two_at_once_run_it_once(tmp_path):
    """Two threads and another process ask for the same stage; one runs it, the others wait and reuse."""
    ran = []
    barrier = threading.Barrier(2)

    def slow(out: Path) -> None:
        ran.append(1)
        other = subprocess.Popen([sys.executable, "-c", OTHER, str(tmp_path)], env={**os.environ, "PYTHONPATH": "."})
        (out / "data.txt").write_text("once")
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(1.0)  # it waits for the lock that this stage holds
        waiting.append(other)

    def get() -> None:
        barrier.wait()
        Store(tmp_path).get(stage(slow))

    waiting: list[subprocess.Popen] = []
    threads = [threading.Thread(target=get) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ran == [1]
    assert waiting[0].wait(20) == 0


OTHER = """
import sys
from pathlib import Path
from pipeline.dag.stage import Stage
from pipeline.dag.store import Store
def run(out): raise SystemExit("ran a second time")
Store(Path(sys.argv[1])).get(Stage(name="count", version=1, config={"x": 1}, run=run))
"""


def test_what_was_there_before_this_process_is_known(tmp_path):
    """Artifacts that this process made itself do not count as earlier; those that it only finished do."""
    first = Store(tmp_path)
    old = first.get(stage(write("a")))
    first.get(stage(write("a")))
    assert first.earlier == set()
    with pytest.raises(RuntimeError):
        first.get(stage(fail_half_way, name="half", resumable=True))
    later = Store(tmp_path)
    later.get(stage(write("a")))
    finished = later.get(stage(write("b"), name="half", resumable=True))
    assert later.earlier == {f"count/{old.key}", f"half/{finished.key}"}
    assert later.ran == ["half"]
