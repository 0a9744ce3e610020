"""`make runs`, `make remove` and `make status` without a name, by real command lines."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from eval.records.scores import ScoreRow, save_scores
from pipeline.config import ROOT
from pipeline.dag.run_directory import publish_run
from pipeline.dag.stage import Stage
from pipeline.dag.status import STATUS
from pipeline.dag.status_file import recorded
from pipeline.dag.store import Store
from pipeline.locks import hold_lock
from pipeline.sweep.job import LOCK, STATE
from pipeline.sweep.runs import shown_bytes
from pipeline.sweep.show import find_points
from pipeline.sweep.table import SWEEP

PAIRS = ["de-en", "fr-en", "ja-en", "tr-en"]


class Place:
    """A store and the runs that use it."""

    def __init__(self, root):
        self.runs, self.artifacts = root / "runs", root / "artifacts"

    def command(self, *words):
        places = [f"runtime.runs={self.runs}", f"runtime.artifacts={self.artifacts}"]
        command = [sys.executable, "-m", "pipeline", *words, *places]
        process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
        assert "Traceback" not in process.stderr
        return process.returncode, process.stdout, process.stderr

    def make(self, name, size, *, pairs=PAIRS, bleu=None, error=None):
        """A run of two stages; all runs share the first. size: bytes of the second. error: ends the run."""
        directory = self.runs / name
        with recorded(directory) as status:
            store = Store(self.artifacts, status)
            status.describe(recipe="smoke", pairs=pairs)
            rows = store.get(Stage(name="clean", version=1, config=0, run=lambda out: fill(out, "rows", 100_000)))
            if error is not None:
                raise error
            report = Stage(
                name="report",
                version=1,
                config=name,
                inputs={"rows": rows},
                run=lambda out: write_results(out, name, size, pairs, bleu),
            )
            publish_run(store.get(report), directory)
        return directory

    def table(self):
        """Cells of `make runs` by the name of the run, and its last line."""
        lines = self.command("runs")[1].splitlines()
        cells = [re.split("  +", line) for line in lines]
        return {row[0]: dict(zip(cells[0], row, strict=True)) for row in cells[1:-2]}, lines[-1]


def fill(out, name, size):
    (out / name).write_bytes(bytes(size))


def write_results(out, name, size, pairs, bleu):
    fill(out, "report.html", size)
    if bleu is not None:
        record = {"name": name, "recipe": "smoke", "pairs": pairs, "train_pairs": dict.fromkeys(pairs, 9)}
        (out / "run.json").write_text(json.dumps(record))
        rows = [row(pair, "moe", bleu + place) for place, pair in enumerate(pairs)]
        save_scores(out / "scores.csv", [*rows, row(pairs[0], "bilingual", 99.0)])


def row(pair, system, score):
    sizes = {"train_pairs": 9, "n_test": 4, "ci_low": 0.0, "ci_high": 99.0}
    return ScoreRow(pair=pair, system=system, metric="bleu", score=score, signature="x", **sizes)


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def test_the_table_has_state_recipe_pairs_bleu_age_and_sizes(place):
    assert place.command("runs") == (0, f"no run in {place.runs}; `make train` begins one\n", "")
    place.make("mine", 1_000_000, bleu=10.0)
    place.make("small", 10_000, pairs=["de-en"])
    with pytest.raises(OSError, match="broken"):
        place.make("bad", 0, error=OSError("broken"))
    two_hours_ago = (place.runs / "mine" / STATUS).stat().st_mtime - 7300
    for file in (STATUS, "run.json"):
        os.utime(place.runs / "mine" / file, (two_hours_ago, two_hours_ago))
    shutil.rmtree(place.runs / "small")
    rows, last = place.table()
    assert list(rows) == ["bad", "mine", "small"]  # the newest first
    cells = rows["mine"]
    assert [cells[column] for column in ("state", "recipe", "pairs", "BLEU", "age")] == [
        "done",
        "smoke",
        "4 pairs",
        "11.5",
        "2 h",
    ]
    assert (cells["alone"], cells["in all"]) == ("2.00 MB", "2.10 MB")  # the report, and its copy in runs/mine
    assert (rows["bad"]["state"], rows["bad"]["pairs"], rows["bad"]["BLEU"]) == ("failed", "4 pairs", "–")
    assert (rows["small"]["state"], rows["small"]["age"]) == ("deleted", "–")
    assert last == "3 runs; artifacts take 1.11 MB"


def test_a_removal_says_what_it_frees_and_frees_it(place):
    place.make("mine", 1_000_000, bleu=10.0)
    other = place.make("other", 50_000, bleu=10.0)
    code, dry, _ = place.command("remove", "NAME=mine", "DRY=1")
    assert code == 0
    assert dry.startswith("would delete mine: 2.00 MB\n  1 artifacts that no other run uses: 1 report\n")
    assert dry.endswith("  1 artifacts stay, because other runs use them\n")
    assert (place.runs / "mine" / "report.html").exists()
    (place.runs / "mine" / "notes.txt").write_text("my own")
    code, text, _ = place.command("remove", "NAME=mine")
    assert code == 0
    assert text.splitlines()[1:3] == dry.splitlines()[1:3]
    assert text.splitlines()[3] == f"left, because no run wrote them: {place.runs}/mine/notes.txt"
    assert [path.name for path in (place.runs / "mine").iterdir()] == ["notes.txt"]
    assert list(place.table()[0]) == ["other"]
    assert (other / "report.html").exists()
    code, _, error = place.command("remove", "NAME=othre")
    assert code == 1
    assert "NAME=othre: there is no such run or sweep in" in error
    assert "did you mean other?" in error
    assert place.command("remove")[2].startswith("error: NAME is empty; give the name of the run or sweep to delete")


def test_what_belongs_to_no_run_is_said_and_freed(place):
    place.make("mine", 10_000)
    Store(place.artifacts).get(Stage(name="old", version=1, config=0, run=lambda out: fill(out, "x", 70_000)))
    last = place.table()[1]
    assert re.search(r"take 18\d kB, of which 70\.\d kB belong to no run \(`make remove UNUSED=1` frees them\)$", last)
    dry = place.command("remove", "UNUSED=1", "DRY=1")[1].splitlines()
    assert re.fullmatch(r"would delete 1 artifacts that no run uses: 70\.\d kB", dry[0])
    assert re.fullmatch(r"  1 old: 70\.\d kB", dry[1])
    assert place.table()[1] == last
    code, text, _ = place.command("remove", "UNUSED=1")
    assert (code, text.splitlines()) == (0, [dry[0].replace("would delete", "deleting"), dry[1]])
    assert re.search(r"1 runs; artifacts take 11\d kB$", place.table()[1])
    error = place.command("remove", "UNUSED=1", "NAME=mine")[2]
    assert error.startswith("error: NAME=mine and UNUSED=1 are two commands; give one of them")


def test_a_sweep_is_removed_as_a_whole_unless_it_is_at_work(place):
    place.make("grid/a", 10_000)
    place.make("grid/b", 10_000)
    place.make("mine", 10_000)
    sweep = place.runs / "grid"
    (sweep / STATE).mkdir()
    for name in (
        SWEEP,
        f"{STATE}/jobs.json",
        f"{STATE}/a.json",
        "a.log",
        f"{STATE}/{LOCK}",
        "report.html",
        "page.json",
    ):
        (sweep / name).write_text("{}")
    with hold_lock(sweep / STATE / LOCK, "sweep"):
        assert "a sweep is at work in" in place.command("remove", "NAME=grid")[2]
    assert list(place.table()[0]) == ["mine", "grid/b", "grid/a"]
    code, text, _ = place.command("remove", "NAME=grid")
    assert code == 0
    assert text.startswith("deleting grid/a, grid/b: ")
    assert [path.name for path in sweep.iterdir()] == ["report.html"]
    assert list(place.table()[0]) == ["mine"]
    place.make("grid/c", 10_000)
    assert place.command("remove", "NAME=grid/c")[0] == 0
    assert list(place.table()[0]) == ["mine"]


def test_status_without_a_name_is_that_of_the_run_or_sweep_that_changed_last(place):
    code, _, error = place.command("status")
    assert code == 1
    assert re.search(r"no run was begun in .*runs; `make train` begins one", error)
    for number, name in enumerate(("older", "mine", "oldest")):
        run = place.make(name, 10_000)
        os.utime(run / STATUS, (1e9 + number % 2, 1e9 + number % 2))
    assert place.command("status")[1].splitlines()[1].split()[:2] == ["mine", "done"]
    place.make("grid/a", 10_000)
    points = [{"id": name, "directory": name, "flops": 1.0} for name in "abc"]
    (place.runs / "grid" / SWEEP).write_text(json.dumps({"points": points}))
    assert [point.id for point in find_points("", place.runs)] == ["a", "b", "c"]


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (3.21e9, "3.21 GB")])
def test_sizes_have_a_unit(size, text):
    assert shown_bytes(size) == text
