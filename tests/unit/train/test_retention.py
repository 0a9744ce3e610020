"""The decision which checkpoints stay, and the removal of what a crash has left."""

import json

import pytest

from pipeline.train.config import CheckpointConfig
from pipeline.train.retention import Saved, apply, forget_after, mark, saved


def checkpoint(root, step, loss=None, **state):
    path = root / f"step-{step:08}"
    path.mkdir()
    (path / "shard-00001.safetensors").write_bytes(b"x")
    (path / "state.json").write_text(json.dumps({"validation": loss, **state}))


def names(*steps):
    return [f"step-{step:08}" for step in steps]


def left(root):
    return sorted(path.name for path in root.glob("step-*"))


def test_the_default_keeps_the_best_and_the_last(tmp_path):
    for step, loss in ((1, 3.0), (2, 2.0), (3, None), (4, 2.5)):
        checkpoint(tmp_path, step, loss)
    apply(tmp_path, CheckpointConfig())
    assert left(tmp_path) == names(2, 4)
    marks = json.loads((tmp_path / "best.json").read_text())
    assert marks == {"best": names(2)[0], "last": names(4)[0], "best_k": names(2), "last_n": names(4)}


def test_rules_add_up(tmp_path):
    for step, loss in ((2, 1.0), (3, 4.0), (4, 2.0), (5, 5.0), (6, 6.0), (7, 7.0), (8, 8.0)):
        checkpoint(tmp_path, step, loss)
    apply(tmp_path, CheckpointConfig(best_k=2, last_n=2, every_n=3))
    assert left(tmp_path) == names(2, 3, 4, 6, 7, 8)


def test_of_equal_losses_the_earlier_is_better():
    checkpoints = [Saved(name="a", step=1, loss=2.0), Saved(name="b", step=2, loss=2.0)]
    assert mark(checkpoints, CheckpointConfig()).best == "a"


def test_before_any_validation_the_last_is_the_best():
    checkpoints = [Saved(name="a", step=1, loss=None), Saved(name="b", step=2, loss=None)]
    assert mark(checkpoints, CheckpointConfig()).best == "b"


def test_deciding_after_every_save_is_deciding_once(tmp_path):
    """While no rule becomes looser, a later decision would not have kept a removed checkpoint either."""
    config = CheckpointConfig(best_k=2, last_n=2, every_n=4)
    losses = [9.0, 3.0, 5.0, None, 4.0, 8.0, 3.5, 7.0, None, 6.0]
    checkpoints = [
        Saved(name=n, step=s, loss=x) for n, s, x in zip(names(*range(1, 11)), range(1, 11), losses, strict=True)
    ]
    once = mark(checkpoints, config)
    for step, loss in enumerate(losses, start=1):
        checkpoint(tmp_path, step, loss)
        apply(tmp_path, config)
    assert left(tmp_path) == sorted({*once.best_k, *once.last_n, *names(4, 8)})
    assert json.loads((tmp_path / "best.json").read_text())["best_k"] == once.best_k == names(2, 7)


def test_what_a_crash_left_is_removed_and_not_counted(tmp_path):
    checkpoint(tmp_path, 1, 1.0)
    checkpoint(tmp_path, 2, 2.0)
    (tmp_path / "step-00000001" / "state.json").unlink()  # killed while removing it
    (tmp_path / "step-00000003.partial").mkdir()
    assert [c.step for c in saved(tmp_path)] == [2]
    apply(tmp_path, CheckpointConfig())
    assert left(tmp_path) == names(2)


def test_a_state_that_is_cut_off_is_not_counted(tmp_path, caplog):
    for step in (1, 2):
        checkpoint(tmp_path, step, float(step))
    (tmp_path / "step-00000001" / "state.json").write_text('{"validation": 1.')
    apply(tmp_path, CheckpointConfig())
    assert left(tmp_path) == names(2)
    assert "step-00000001 is damaged and not counted" in caplog.text


def test_checkpoints_after_the_one_resumed_from_are_forgotten(tmp_path):
    for step in (1, 2, 3, 4):
        checkpoint(tmp_path, step, 1.0)
    (tmp_path / "step-00000004" / "state.json").write_text("{")
    forget_after(tmp_path, 2)
    assert left(tmp_path) == names(1, 2)


def test_a_checkpoint_of_an_older_version_knows_its_loss_if_it_was_the_best(tmp_path):
    for step, best in ((1, 1), (2, 1)):
        checkpoint(tmp_path, step)
        progress = {"step": step, "best_step": best, "best_loss": 3.0}
        (tmp_path / f"step-{step:08}" / "state.json").write_text(json.dumps({"progress": progress}))
    assert [c.loss for c in saved(tmp_path)] == [3.0, None]


@pytest.mark.parametrize("field", ["best_k", "last_n"])
def test_one_must_stay(field):
    with pytest.raises(ValueError, match=f"train.checkpoints.{field}=0 must be at least 1"):
        CheckpointConfig(**{field: 0})


def test_most_is_what_the_disk_must_hold():
    assert CheckpointConfig().most(1000) == 3
    assert CheckpointConfig(best_k=2, last_n=3, every_n=100).most(1000) == 16
