"""`runs/<name>` while publishers are killed and race each other: what a user put there stays."""

import shutil
import threading
from pathlib import Path

import pytest

from pipeline.run_record import lay_out, publish_run
from pipeline.stage import Artifact


class Killed(BaseException):
    """As a SIGKILL, after which nothing of the process runs any more."""


def report(place, key):
    path = place / f"report-{key}"
    (path / "translations").mkdir(parents=True)
    for name in ("report.html", "scores.csv", "translations/de-en.jsonl"):
        (path / name).write_text(f"{name} of {key}")
    (path / "manifest.json").write_text("{}")
    return Artifact(stage="report", key=key, path=path, content=key)


def check(run, key):
    """The results of one report, all of them."""
    assert (run / ".artifact").read_text().split("\n")[0] == key
    for name in ("report.html", "scores.csv", "translations/de-en.jsonl"):
        assert (run / name).read_text() == f"{name} of {key}"


def add_notes(run):
    (run / "notes").mkdir()
    (run / "notes" / "mine.txt").write_text("keep me")
    (run / "link").symlink_to("/nowhere")


def check_notes(run):
    assert (run / "notes" / "mine.txt").read_text() == "keep me"
    assert (run / "link").readlink() == Path("/nowhere")
    left = {path.name for path in run.parent.iterdir()}
    assert left == {run.name, f".{run.name}.lock"}


@pytest.fixture
def killed(monkeypatch):
    """Runs a function that is killed in place of its n-th rename."""

    def run(number, function, *arguments):
        real, count = Path.rename, 0

        def rename(path, target):
            nonlocal count
            count += 1
            if count == number:
                raise Killed
            return real(path, target)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", rename)
            with pytest.raises(Killed):
                function(*arguments)

    return run


@pytest.mark.parametrize("begun_again", [False, True], ids=["at once", "after a command wrote its status"])
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_kill_at_any_rename_deletes_nothing_of_the_user(tmp_path, killed, number, begun_again):
    run = tmp_path / "runs" / "demo"
    publish_run(report(tmp_path, "one"), run)
    add_notes(run)
    second = report(tmp_path, "two")
    killed(number, publish_run, second, run)
    if begun_again:
        run.mkdir(exist_ok=True)
        (run / "status.json").write_text("{}")
    publish_run(second, run)
    check(run, "two")
    check_notes(run)


@pytest.mark.parametrize("begun_again", [False, True], ids=["at once", "after a command wrote its status"])
def test_the_results_that_were_there_come_back_where_no_new_ones_are_published(tmp_path, killed, begun_again):
    run = tmp_path / "runs" / "demo"
    publish_run(report(tmp_path, "one"), run)
    add_notes(run)
    killed(2, publish_run, report(tmp_path, "two"), run)
    if begun_again:
        run.mkdir(exist_ok=True)
        (run / "status.json").write_text("{}")
    page = tmp_path / "page"
    page.mkdir()
    (page / "data.html").write_text("data")
    lay_out(Artifact(stage="data", key="data", path=page, content="data"), run)
    check(run, "one")
    assert (run / "notes" / "mine.txt").read_text() == "keep me"


def test_two_publishers_of_one_run_take_turns(tmp_path):
    """Twenty races; a fifth of them failed without a lock."""
    reports = [report(tmp_path, "one"), report(tmp_path, "two")]
    run = tmp_path / "runs" / "demo"
    failures = []
    for _ in range(20):
        shutil.rmtree(run.parent, ignore_errors=True)
        run.mkdir(parents=True)
        add_notes(run)
        barrier = threading.Barrier(2)

        seen = []

        def publish(artifact, barrier=barrier, seen=seen):
            barrier.wait()
            try:
                publish_run(artifact, run, finish=lambda run: seen.append((run / "report.html").read_text()))
            except Exception as error:  # noqa: BLE001 - told below
                failures.append(error)

        threads = [threading.Thread(target=publish, args=(artifact,)) for artifact in reports]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert set(seen) == {"report.html of one", "report.html of two"}  # its own each
        check(run, (run / ".artifact").read_text().split("\n")[0])
        check_notes(run)
