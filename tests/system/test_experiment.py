"""`python -m bench.experiment`: results kept in small archives give the same scores elsewhere."""

import csv
import json
import shutil

import pytest

from pipeline.config import ROOT
from tests.system.place import BUDGET, run


@pytest.fixture(scope="module")
def archives(place, results, tmp_path_factory):
    """Those of the smoke run, and of its bilingual models, a pair each."""
    directory = tmp_path_factory.mktemp("archives")
    command(directory, "keep", results)
    for pair in ("de-en", "tr-en"):
        overrides = ["recipes=smoke", BUDGET.strip("'"), f"pairs=[{pair}]", *place.directories]
        command(directory, "baselines", f"bilingual_{pair}", *overrides)
    return directory


def command(archives, *words):
    process = run([ROOT / ".venv/bin/python", "-m", "bench.experiment", "--archives", archives, *words])
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines()


def test_restored_runs_have_the_same_scores(archives, results, tmp_path):
    assert command(archives, "restore", "--runs", tmp_path) == [str(tmp_path / "smoke")]
    for name in ("scores.csv", "significance.csv", "macro.csv", "faults.csv", "run.json"):
        kept, original = ((directory / name).read_text(encoding="utf-8") for directory in (tmp_path / "smoke", results))
        assert kept == original, name


def test_archives_are_small_and_the_same_each_time(archives, results, tmp_path):
    shutil.copy(archives / "tests.tar.xz", tmp_path)
    (path,) = command(tmp_path, "keep", results)
    assert path == str(tmp_path / "smoke.tar.xz")
    assert (tmp_path / "smoke.tar.xz").read_bytes() == (archives / "smoke.tar.xz").read_bytes()
    assert (tmp_path / "tests.tar.xz").read_bytes() == (archives / "tests.tar.xz").read_bytes()
    size = sum(path.stat().st_size for path in (results / "translations").rglob("*.jsonl"))
    assert sum(path.stat().st_size for path in archives.iterdir()) < size / 2


def test_without_its_bilingual_models_a_run_is_restored_alone(archives, results, tmp_path):
    for name in ("tests", "smoke", "bilingual_de-en"):
        shutil.copy(archives / f"{name}.tar.xz", tmp_path)
    command(tmp_path, "restore", "--runs", tmp_path)
    with (tmp_path / "smoke" / "scores.csv").open(encoding="utf-8") as stream:
        assert {row["system"] for row in csv.DictReader(stream)} == {"moe"}


def test_translations_of_another_test_set_are_refused(archives, results, tmp_path):
    changed = tmp_path / "changed"
    shutil.copytree(results, changed)
    path = changed / "translations" / "moe" / "tr-en.jsonl"
    first, *lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    line = json.dumps({**json.loads(first), "reference": "Another one."}) + "\n"
    path.write_text("".join([line, *lines]), encoding="utf-8")
    process = run([ROOT / ".venv/bin/python", "-m", "bench.experiment", "--archives", archives, "keep", changed])
    assert process.returncode == 2
    assert process.stderr == "error: moe: the test set of tr-en is not that of tests.tar.xz\n"
    assert not (archives / "changed.tar.xz").exists()
