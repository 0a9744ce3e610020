"""Which artifacts a run alone needs, and that a removal, wherever it is killed, harms no other run."""

import json
import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from pipeline.dag.artifact import verify
from pipeline.dag.inventory import Inventory
from pipeline.dag.removal import remove_runs
from pipeline.dag.run_directory import publish_run
from pipeline.dag.stage import Stage
from pipeline.dag.status_file import recorded
from pipeline.dag.store import Store
from pipeline.dag.uses import hold_store
from pipeline.stopping import Stopped


def write(out: Path, text: str = "a", name: str = "data.txt") -> None:
    (out / name).parent.mkdir(exist_ok=True)
    (out / name).write_text(text)


def stage(name, config, *inputs, run=write):
    return Stage(name=name, version=1, config=config, inputs={a.stage: a for a in inputs}, run=run)


def train_stage(store, seed, *, origin=""):
    """A training whose job says from which weights it began."""
    cleaned = store.get(stage("clean", "de-en", run=lambda out: write(out, "rows" * 1000)))

    def train(out: Path) -> None:
        write(out, f"weights {seed}" * 100)
        write(out, json.dumps({"train": {"initialize_from": origin}}), "log/job.json")

    return stage("train", f"{seed}{origin}", cleaned, run=train)


def make(place, name, seed, *, origin="", runs="runs"):
    """A run of three stages, of which the first is the same for all runs; returns its store."""
    directory = place / runs / name
    with recorded(directory) as status:
        store = Store(place / "artifacts", status)
        model = store.get(train_stage(store, seed, origin=origin))
        report = store.get(stage("report", name, model, run=lambda out: write(out, name, "report.html")))
        publish_run(report, directory)
    return store


def remove(place, *names, runs="runs"):
    directories = [place / runs / name for name in names]
    return remove_runs(place / "artifacts", place / runs, lambda inventory: directories, lambda removal: True)


def stored(place):
    """Names of the artifacts that are left. Each one must be whole."""
    inventory = Inventory(place / "artifacts", place / "runs")
    store = Store(place / "artifacts")
    for name in inventory.inputs:
        verify(store.find(*name.split("/")))
    return sorted(name.partition("/")[0] for name in inventory.inputs)


def inventory(place):
    return Inventory(place / "artifacts", place / "runs")


@pytest.fixture
def two(tmp_path):
    make(tmp_path, "mine", 1)
    make(tmp_path, "other", 2)
    return tmp_path


def test_a_removal_frees_what_only_that_run_needs(two):
    freed = inventory(two).freed_with([two / "runs" / "mine"])
    assert [name.partition("/")[0] for name in freed] == ["report", "train"]  # each one before its inputs
    assert remove(two, "mine") == []
    assert stored(two) == ["clean", "report", "train"]
    assert not (two / "runs" / "mine").exists()
    assert make(two, "other", 2).ran == []  # it finds all that it needs
    assert make(two, "mine", 1).ran == ["train", "report"]
    remove(two, "mine")
    remove(two, "other")
    assert stored(two) == []
    assert list((two / "artifacts" / ".runs").iterdir()) == []


def test_a_sweep_is_removed_with_what_its_points_share(two):
    freed = inventory(two).freed_with([two / "runs" / "mine", two / "runs" / "other"])
    assert [name.partition("/")[0] for name in freed] == ["report", "report", "train", "train", "clean"]


def test_runs_of_older_versions_are_known_by_their_files(two):
    """They have no record in the store."""
    shutil.rmtree(two / "artifacts" / ".runs")
    remove(two, "mine")
    assert stored(two) == ["clean", "report", "train"]
    write(two / "runs" / "other", "{}", "run.json")
    for file in (".artifact", "status.json"):  # each of the two is enough
        kept = (two / "runs" / "other" / file).read_bytes()
        (two / "runs" / "other" / file).unlink()
        stages = {name.partition("/")[0] for name in inventory(two).uses[two / "runs" / "other"]}
        assert stages == {"clean", "report", "train"}, file
        (two / "runs" / "other" / file).write_bytes(kept)


def test_a_run_whose_directory_was_deleted_keeps_its_artifacts_until_it_is_removed(two):
    shutil.rmtree(two / "runs" / "other")
    remove(two, "mine")
    assert stored(two) == ["clean", "report", "train"]
    remove(two, "other")
    assert stored(two) == []


def test_a_run_in_another_directory_of_results_keeps_what_it_needs(two):
    make(two, "far", 1, runs="elsewhere")
    remove(two, "mine")
    assert make(two, "far", 1, runs="elsewhere").ran == []


def test_an_unfinished_run_keeps_what_it_has_taken(two):
    """It took `clean`, which others had made, and stopped in its training."""

    def stop(out: Path) -> None:
        write(out)
        raise Stopped("train")

    with suppress(Stopped), recorded(two / "runs" / "stopped") as status:
        store = Store(two / "artifacts", status)
        cleaned = store.get(stage("clean", "de-en"))
        store.get(Stage(name="train", version=1, config=3, inputs={"clean": cleaned}, run=stop, resumable=True))
    remove(two, "mine", "other")
    (partial,) = (two / "artifacts" / "train").glob("*.partial")
    assert [path.name for path in partial.iterdir()] == ["data.txt"]
    assert len(list((two / "artifacts" / "clean").glob("*/data.txt"))) == 1
    remove(two, "stopped")
    assert stored(two) == []
    assert not partial.exists()


def test_a_run_that_began_from_the_weights_of_another_one_keeps_them(two):
    (name,) = [name for name in inventory(two).freed_with([two / "runs" / "mine"]) if name.startswith("train")]
    make(two, "tuned", 4, origin=str(two / "artifacts" / name / "checkpoints"))
    assert not any(name.startswith("train") for name in inventory(two).freed_with([two / "runs" / "mine"]))
    remove(two, "tuned")
    assert any(name.startswith("train") for name in inventory(two).freed_with([two / "runs" / "mine"]))


def test_what_was_made_from_a_run_and_is_of_no_run_goes_with_it(two):
    store = Store(two / "artifacts")
    pruned = store.get(stage("translate", "pruned", store.get(train_stage(store, 1))))
    remove(two, "mine")
    assert not pruned.path.exists()
    assert stored(two) == ["clean", "report", "train"]


def test_files_of_somebody_else_stay(two):
    run = two / "runs" / "mine"
    for name in ("notes.txt", "translations/mine.txt", "pruned/de-en.json", "pruned/de-en.csv", "pruned/mine.txt"):
        write(run, name=name)
    left = remove(two, "mine")
    assert sorted(str(path.relative_to(run)) for path in left) == [
        "notes.txt",
        "pruned/mine.txt",
        "translations/mine.txt",
    ]
    assert all(path.read_text() == "a" for path in left)
    assert sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()) == sorted(
        str(path.relative_to(run)) for path in left
    )


def test_a_running_run_is_not_removed(two):
    before = sorted(two.rglob("*"))
    with recorded(two / "runs" / "mine"), pytest.raises(ValueError, match=r"run mine is running \(process \d+ on"):
        remove(two, "mine")
    assert sorted(two.rglob("*")) == before


def test_a_run_that_somebody_translates_with_is_not_removed(two):
    (name,) = [name for name in inventory(two).freed_with([two / "runs" / "mine"]) if name.startswith("train")]
    holder = Store(two / "artifacts")
    holder.hold(*name.split("/"))
    with pytest.raises(ValueError, match=f"artifact {name} of the run is in use by another command"):
        remove(two, "mine")
    assert (two / "runs" / "mine" / "report.html").exists()
    remove(two, "other")  # nobody uses this one
    holder._held.close()  # as the end of its process does
    remove(two, "mine")
    assert stored(two) == []


def test_nothing_is_taken_from_a_store_while_something_is_removed(two):
    """A run that begins meanwhile makes again what is gone."""
    titles = []
    with hold_store(two / "artifacts", shared=False):
        thread = threading.Thread(target=lambda: titles.extend(make(two, "new", 1).ran))
        thread.start()
        time.sleep(0.5)
        (place,) = (p for p in (two / "artifacts" / "train").glob("*/data.txt") if "weights 1" in p.read_text())
        shutil.rmtree(place.parent)
    thread.join()
    assert titles == ["train", "report"]


@pytest.mark.parametrize("calls", range(18))
def test_a_removal_that_is_killed_harms_nothing_and_is_completed_by_the_next_one(two, monkeypatch, calls):
    """Every deletion and renaming may be the last one."""
    write(two / "runs" / "mine", name="notes.txt")
    if calls % 3 == 0:
        shutil.rmtree(two / "artifacts" / ".runs")  # as with runs of an older version
    (report,) = (path for path in (two / "artifacts" / "report").glob("*/report.html") if path.read_text() == "mine")
    num_calls = [0]

    def until_killed(method):
        def call(path, *arguments, **options):
            num_calls[0] += 1
            if num_calls[0] > calls:
                raise KeyboardInterrupt
            return method(path, *arguments, **options)

        return call

    with monkeypatch.context() as patch:
        for name in ("rename", "unlink", "rmdir"):
            patch.setattr(Path, name, until_killed(getattr(Path, name)))
        try:
            remove(two, "mine")
            finished = True
        except KeyboardInterrupt:
            finished = False
    assert finished == (calls == 17)
    stages = stored(two)  # all that is left is whole
    assert stages.count("clean") == 1
    if (two / "artifacts" / ".removed").exists():
        assert two / "runs" / "mine" in inventory(two).uses  # its name is still known
    if report.exists():
        assert stages.count("train") == 2  # nothing has lost its inputs
    if calls % 2:
        make(two, "mine", 1)  # and removed once more
    assert make(two, "other", 2).ran == []
    remove(two, "mine")
    assert stored(two) == ["clean", "report", "train"]
    assert [path.name for path in (two / "runs" / "mine").iterdir()] == ["notes.txt"]
    assert not (two / "artifacts" / ".removed").exists()
    assert make(two, "mine", 1).ran == ["train", "report"]
