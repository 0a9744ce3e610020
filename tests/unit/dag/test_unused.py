"""`make remove UNUSED=1` removes the artifacts that no run needs, and nothing that a command uses."""

import shutil

import pytest

from pipeline.dag.removal import remove_unused
from pipeline.dag.status_file import recorded
from pipeline.dag.store import Store
from tests.unit.dag.test_removal import inventory, make, stage, stored, two  # noqa: F401


def remove_orphans(place):
    sizes = []
    remove_unused(place / "artifacts", place / "runs", lambda removal: bool(sizes.append(removal.num_kept) or True))
    return sizes[0]


def orphan(place, *inputs, name="old"):
    """An artifact that no run uses, made by a command that has ended."""
    store = Store(place / "artifacts")
    artifact = store.get(stage(name, 0, *inputs))
    store._held.close()  # as the end of its process does
    return artifact


def test_what_no_run_uses_is_removed_and_nothing_else(two):  # noqa: F811
    model = inventory(two).freed_with([two / "runs" / "mine"])[-1]
    of_model = orphan(two, Store(two / "artifacts").find(*model.split("/")))
    chain = orphan(two, of_model, orphan(two, name="first"), name="last")
    shutil.rmtree(two / "runs" / "other")  # its artifacts are kept, as the record of the store says
    (two / "artifacts" / "train" / f"{'0' * 16}.partial").mkdir()  # of a command that was killed
    assert remove_orphans(two) == 0
    assert not of_model.path.exists()
    assert not chain.path.exists()
    assert stored(two) == ["clean", "report", "report", "train", "train"]
    assert make(two, "mine", 1).ran == make(two, "other", 2).ran == []
    assert remove_orphans(two) == 0


def test_what_a_command_uses_is_not_removed_nor_its_inputs(two):  # noqa: F811
    held_artifact = orphan(two, orphan(two, name="first"))
    orphan(two, name="free")
    holder = Store(two / "artifacts")
    holder.hold(held_artifact.stage, held_artifact.key)
    assert remove_orphans(two) == 2
    assert stored(two) == ["clean", "first", "old", "report", "report", "train", "train"]
    holder._held.close()
    assert remove_orphans(two) == 0
    assert stored(two) == ["clean", "report", "report", "train", "train"]


def test_nothing_unused_is_removed_while_a_command_takes_artifacts_for_no_run(two):  # noqa: F811
    """It uses what it has made, and no record says so."""
    store = Store(two / "artifacts")
    made_artifact = store.get(stage("old", 0))
    with pytest.raises(
        ValueError, match=r"a command that belongs to no run .* works in .*; wait for its end, or stop it"
    ):
        remove_orphans(two)
    assert made_artifact.path.exists()
    store._held.close()
    remove_orphans(two)
    assert not made_artifact.path.exists()


def test_a_run_at_work_keeps_what_it_has_taken(two):  # noqa: F811
    with recorded(two / "runs" / "new") as status:
        store = Store(two / "artifacts", status)
        taken_artifact = store.get(stage("old", 0))
        remove_orphans(two)
        assert taken_artifact.path.exists()
