"""Publishers of `runs/<name>` are killed and race each other; the files of the user stay."""

import shutil
import threading
from pathlib import Path

import pytest

from pipeline.dag.artifact import Artifact
from pipeline.dag.run_directory import lay_out, publish_run


class Killed(BaseException):
    """An end of the process like SIGKILL, after which no handler runs."""


def report(place, key):
    path = place / f"report-{key}"
    (path / "translations").mkdir(parents=True)
    for name in ("report.html", "scores.csv", "translations/de-en.jsonl"):
        (path / name).write_text(f"{name} of {key}")
    (path / "manifest.json").write_text("{}")
    return Artifact(stage="report", key=key, path=path, content=key)


def check(run, key):
    """Assert that all results of one report are published."""
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
    """A function that calls another one and kills it in place of its n-th rename."""

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


@pytest.mark.parametrize("restarted", [False, True], ids=["at once", "after a command wrote its status"])
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_kill_at_any_rename_deletes_no_file_of_the_user(tmp_path, killed, number, restarted):
    run = tmp_path / "runs" / "demo"
    publish_run(report(tmp_path, "one"), run)
    add_notes(run)
    second = report(tmp_path, "two")
    killed(number, publish_run, second, run)
    if restarted:
        run.mkdir(exist_ok=True)
        (run / "status.json").write_text("{}")
    publish_run(second, run)
    check(run, "two")
    check_notes(run)


@pytest.mark.parametrize("restarted", [False, True], ids=["at once", "after a command wrote its status"])
def test_old_results_come_back_if_no_new_ones_are_published(tmp_path, killed, restarted):
    run = tmp_path / "runs" / "demo"
    publish_run(report(tmp_path, "one"), run)
    add_notes(run)
    killed(2, publish_run, report(tmp_path, "two"), run)
    if restarted:
        run.mkdir(exist_ok=True)
        (run / "status.json").write_text("{}")
    page = tmp_path / "page"
    page.mkdir()
    (page / "data.html").write_text("data")
    lay_out(Artifact(stage="data", key="data", path=page, content="data"), run)
    check(run, "one")
    assert (run / "notes" / "mine.txt").read_text() == "keep me"


def test_two_publishers_of_one_run_take_turns(tmp_path):
    """They race twenty times. Without a lock, a fifth of the races failed."""
    reports = [report(tmp_path, "one"), report(tmp_path, "two")]
    run = tmp_path / "runs" / "demo"
    failures = []
    for _ in range(20):
        shutil.rmtree(run.parent, ignore_errors=True)
        run.mkdir(parents=True)
        add_notes(run)
        barrier = threading.Barrier(2)

        pages = []

        def publish(artifact, barrier=barrier, pages=pages):
            barrier.wait()
            try:
                publish_run(artifact, run, finish=lambda run: pages.append((run / "report.html").read_text()))
            except Exception as error:  # noqa: BLE001 - asserted below
                failures.append(error)

        threads = [threading.Thread(target=publish, args=(artifact,)) for artifact in reports]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert set(pages) == {"report.html of one", "report.html of two"}  # each publisher sees its own
        check(run, (run / ".artifact").read_text().split("\n")[0])
        check_notes(run)
