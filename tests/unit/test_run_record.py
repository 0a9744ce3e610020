"""`runs/<name>`: laid out from a report, without losing what somebody put there."""

from pipeline.run_record import lay_out, publish_run
from pipeline.stage import Artifact


def report(tmp_path, key, files):
    path = tmp_path / key
    path.mkdir()
    for name, text in files.items():
        (path / name).write_text(text)
    return Artifact(stage="report", key=key, path=path, content="-")


def test_a_new_report_replaces_the_old_one_and_keeps_notes(tmp_path):
    run = tmp_path / "runs" / "demo"
    run.parent.mkdir()
    publish_run(report(tmp_path, "one", {"report.html": "1", "old.png": "1", "manifest.json": "{}"}), run)
    (run / "notes").mkdir()
    (run / "notes" / "mine.txt").write_text("keep me")
    publish_run(report(tmp_path, "two", {"report.html": "2"}), run)
    found = {
        str(f.relative_to(run)): f.read_text() for f in run.rglob("*") if f.is_file() and not f.name.startswith(".")
    }
    assert found == {"report.html": "2", "notes/mine.txt": "keep me"}
    assert [p.name for p in run.parent.iterdir()] == ["demo"]


def test_the_same_report_is_left_alone(tmp_path):
    run = tmp_path / "runs" / "demo"
    run.parent.mkdir()
    artifact = report(tmp_path, "one", {"report.html": "1"})
    publish_run(artifact, run)
    (run / "report.html").write_text("edited")
    publish_run(artifact, run)
    assert (run / "report.html").read_text() == "edited"


def test_data_is_laid_out_beside_the_results_of_training(tmp_path):
    run = tmp_path / "runs" / "demo"
    run.parent.mkdir()
    publish_run(report(tmp_path, "one", {"report.html": "1", "funnel.csv": "old"}), run)
    lay_out(report(tmp_path, "two", {"data.html": "2", "funnel.csv": "new", "manifest.json": "{}"}), run)
    found = {file.name: file.read_text() for file in run.iterdir() if not file.name.startswith(".")}
    assert found == {"report.html": "1", "data.html": "2", "funnel.csv": "new"}
    publish_run(report(tmp_path, "three", {"report.html": "3", "funnel.csv": "newer"}), run)
    found = {file.name: file.read_text() for file in run.iterdir() if not file.name.startswith(".")}
    assert found == {"report.html": "3", "data.html": "2", "funnel.csv": "newer"}
