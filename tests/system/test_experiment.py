"""`python -m bench.experiment`: results kept in small archives give the same scores elsewhere."""

import csv
import json
import shutil
from statistics import fmean

import pytest

from bench.experiment.archive import keep_run, restore
from bench.experiment.systems import describe
from eval.records.scores import load_scores
from pipeline.commands.opening import training_seconds
from pipeline.config import ROOT, load_config
from tests.system.place import SHORTER, run

SCORES = ("scores.csv", "significance.csv", "macro.csv", "faults.csv")
FURTHER = ("test_sets/news", "test_sets/talks")  # news has both pairs, talks one


@pytest.fixture(scope="module")
def tested(place, results, tests_directory):
    """The models of the smoke run, on two further test sets."""
    words = ("name=smoke_further", f"score.test_sets=[own,{tests_directory}]", "score.resamples=100")
    process = run([*place.command(*words), "LANG_PAIRS=de-en tr-en"], timeout=300)
    assert process.returncode == 0, process.stderr
    return results.parent / "smoke_further"


@pytest.fixture(scope="module")
def alone(tested, tmp_path_factory):
    """The run as it would be without bilingual models, which are trained elsewhere."""
    directory = tmp_path_factory.mktemp("alone") / "smoke"
    # a test set without scores.csv is not kept
    shutil.copytree(tested, directory, ignore=shutil.ignore_patterns("bilingual", "[!s]*.csv", "*.html"))
    for path in (directory / "run.json", *directory.glob("test_sets/*/run.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        del record["systems"]["bilingual"]
        record.get("translated", {}).pop("bilingual", None)
        record["config"]["baselines"]["tiers"] = []
        path.write_text(json.dumps(record), encoding="utf-8")
    return directory


@pytest.fixture(scope="module")
def archives(place, alone, tests_directory, tmp_path_factory):
    """Those of the run, and of its bilingual models, a pair each."""
    directory = tmp_path_factory.mktemp("archives")
    assert command(directory, "keep", alone) == [str(directory / "smoke.tar.xz")]
    for pair in ("de-en", "tr-en"):
        further = f"score.test_sets=[own,{tests_directory}]"
        overrides = ["recipes=smoke", *SHORTER, f"pairs=[{pair}]", further, *place.directories]
        command(directory, "baselines", f"bilingual_{pair}", *overrides)
    return directory


def command(archives, *words):
    process = run([ROOT / ".venv/bin/python", "-m", "bench.experiment", "--archives", archives, *words])
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines()


def test_a_restored_run_has_the_same_scores_and_a_report(archives, tested, tmp_path):
    assert command(archives, "restore", tmp_path) == [str(tmp_path / "smoke")]
    for directory in ("", *FURTHER):
        for name in SCORES:
            restored, original = ((path / directory / name).read_bytes() for path in (tmp_path / "smoke", tested))
            assert restored == original, f"{directory} {name}"
        restored, original = (
            json.loads((path / directory / "run.json").read_bytes()) for path in (tmp_path / "smoke", tested)
        )
        assert restored == original, directory
    process = run([ROOT / ".venv/bin/python", "-m", "eval", "report", tmp_path / "smoke"])
    assert process.returncode == 0, process.stderr


def test_archives_are_small_and_the_same_each_time(archives, alone, tested, tmp_path):
    keep_run(alone, tmp_path)
    for name in ("smoke.tar.xz", "tests.tar.xz"):
        assert (tmp_path / name).read_bytes() == (archives / name).read_bytes()
    size = sum(path.stat().st_size for path in tested.rglob("translations/*/*.jsonl"))
    assert sum(path.stat().st_size for path in archives.iterdir()) < size / 2


def test_systems_have_the_means_of_their_seeds_and_the_speed_that_was_planned(place, results, tmp_path):
    """A second seed is the first one with other records."""
    shutil.copytree(results, tmp_path / "smoke_s2", ignore=shutil.ignore_patterns("*.html"))
    shutil.copytree(results, tmp_path / "smoke_s1", ignore=shutil.ignore_patterns("*.html"))
    record = json.loads((results / "run.json").read_text(encoding="utf-8"))
    first, bilingual = record["systems"]["moe"][0], record["systems"]["bilingual"]
    record["config"]["train"]["seed"] += 1
    record["systems"]["moe"] = [{**first, "tokens_per_second": 3 * first["tokens_per_second"], "validation_loss": 0.0}]
    (tmp_path / "smoke_s2" / "run.json").write_text(json.dumps(record), encoding="utf-8")
    rows = [
        json.loads(line) | {"memory": 2**40}
        for line in (results / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    (tmp_path / "smoke_s2" / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command(tmp_path, "systems", tmp_path / "smoke_s1", tmp_path / "smoke_s2", "--out", tmp_path / "systems.csv")
    with (tmp_path / "systems.csv").open(encoding="utf-8") as stream:
        system, baseline = csv.DictReader(stream)
    assert (system["system"], system["num_seeds"], system["recipe"]) == ("smoke", "2", "smoke")
    config = load_config(["recipes=smoke", f"pairs={list(record['pairs'])}"])
    expected = {
        "parameters": first["parameters"],
        "tokens_per_second": 2 * first["tokens_per_second"],
        "planned_tokens_per_second": config.train.max_tokens / training_seconds(config),
        "validation_loss": first["validation_loss"] / 2,
        "memory_gib": 1024,
        "bleu": mean_score(results, "moe"),
    }
    assert {name: float(system[name]) for name in expected} == pytest.approx(expected, rel=1e-3)
    expected = {
        "models": 2,
        "parameters": sum(model["parameters"] for model in bilingual),
        "train_hours": sum(model["train_seconds"] for model in bilingual) / 3600,
        "bleu": mean_score(results, "bilingual"),
    }
    assert baseline["system"] == "bilingual"
    by_run = describe([tmp_path / "smoke_s1", tmp_path / "smoke_s2"], by_run=True)
    assert [row["system"] for row in by_run] == ["smoke_s1", "smoke_s2", "bilingual"]
    assert [row["num_seeds"] for row in by_run] == [1, 1, 1]
    assert [row["validation_loss"] for row in by_run[:2]] == [first["validation_loss"], 0.0]
    assert {name: float(baseline[name]) for name in expected} == pytest.approx(expected, rel=1e-3)


def test_the_speed_of_systems_is_measured_on_lines_of_all_pairs(place, results, tmp_path):
    out = tmp_path / "decoding.csv"
    amounts = ["--sentences", "3", "--rounds", "2"]
    command(tmp_path, "decoding", results, "--artifacts", place.root / "artifacts", *amounts, "--out", out)
    with out.open(encoding="utf-8") as stream:
        (row,) = csv.DictReader(stream)
    assert (row["system"], row["pairs"], row["sentences"], row["rounds"], row["beam"]) == ("smoke", "2", "6", "2", "4")
    assert 0 < float(row["slowest"]) <= float(row["sentences_per_second"]) <= float(row["fastest"])


def test_scores_of_systems_are_those_of_the_test_set_that_is_asked_for(tested):
    system, baseline = describe([tested], "talks")
    for row, name in ((system, "moe"), (baseline, "bilingual")):
        assert (row["test_set"], row["num_pairs"]) == ("talks", 1)
        assert row["bleu"] == mean_score(tested / "test_sets" / "talks", name)
    with pytest.raises(ValueError, match=r"has no scores of movies"):
        describe([tested], "movies")


def mean_score(run, system):
    return fmean(row.score for row in load_scores(run / "scores.csv") if (row.system, row.metric) == (system, "bleu"))


def test_without_bilingual_models_a_run_is_restored_alone(archives, tmp_path):
    for name in ("tests", "smoke"):
        shutil.copy(archives / f"{name}.tar.xz", tmp_path)
    command(tmp_path, "restore", tmp_path / "runs")
    with (tmp_path / "runs" / "smoke" / "scores.csv").open(encoding="utf-8") as stream:
        assert {row["system"] for row in csv.DictReader(stream)} == {"moe"}
    with pytest.raises(ValueError, match=r"runs/smoke exists; choose another directory, or remove it"):
        restore(tmp_path, tmp_path / "runs")


def test_a_test_set_that_no_bilingual_model_has_translated_is_named(place, archives, tmp_path):
    for name in ("tests", "smoke"):
        shutil.copy(archives / f"{name}.tar.xz", tmp_path)
    overrides = ["recipes=smoke", *SHORTER, "pairs=[de-en,tr-en]", *place.directories]
    command(tmp_path, "baselines", "bilingual", *overrides)
    with pytest.raises(ValueError, match=r"smoke: no bilingual model has translated news; .* score.test_sets"):
        restore(tmp_path, tmp_path / "runs")


def test_a_missing_bilingual_model_is_named(archives, tmp_path):
    for name in ("tests", "smoke", "bilingual_de-en"):
        shutil.copy(archives / f"{name}.tar.xz", tmp_path)
    missing = r"smoke: no archive has the bilingual models of tr-en; keep them too, or restore with --incomplete"
    with pytest.raises(ValueError, match=missing):
        restore(tmp_path, tmp_path / "runs")
    shutil.copy(archives / "bilingual_de-en.tar.xz", tmp_path / "again.tar.xz")
    with pytest.raises(
        ValueError, match=r"bilingual_de-en.tar.xz has .*translations/bilingual/de-en.jsonl, as another"
    ):
        restore(tmp_path, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_an_incomplete_set_of_bilingual_models_is_restored_on_request(archives, tested, tmp_path):
    for name in ("tests", "smoke", "bilingual_de-en"):
        shutil.copy(archives / f"{name}.tar.xz", tmp_path)
    (run_there,) = command(tmp_path, "restore", tmp_path / "runs", "--incomplete")
    for directory in ("", "test_sets/news"):
        rows, whole = (load_scores(path / directory / "scores.csv") for path in (tmp_path / "runs" / "smoke", tested))
        assert rows == [row for row in whole if (row.pair, row.system) != ("tr-en", "bilingual")]
        assert len(rows) < len(whole)
    process = run([ROOT / ".venv/bin/python", "-m", "eval", "report", run_there])
    assert process.returncode == 0, process.stderr
    page = (tmp_path / "runs" / "smoke" / "report.html").read_text(encoding="utf-8")
    assert "on the one pair with a bilingual baseline" in page


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"reference": "Another one."},
            r"smoke: translations/moe/tr-en.jsonl translates another test set than tests.tar.xz has",
        ),
        (
            {"hypothesis": "Another one."},
            r"smoke.tar.xz has other results; remove it, or keep these under another name",
        ),
    ],
)
def test_other_translations_do_not_replace_an_archive(archives, alone, tmp_path, change, message):
    shutil.copytree(alone, tmp_path / "smoke")
    path = tmp_path / "smoke" / "translations" / "moe" / "tr-en.jsonl"
    first, *lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join([json.dumps({**json.loads(first), **change}) + "\n", *lines]), encoding="utf-8")
    before = {archive.name: archive.read_bytes() for archive in archives.iterdir()}
    with pytest.raises(ValueError, match=message):
        keep_run(tmp_path / "smoke", archives)
    assert {archive.name: archive.read_bytes() for archive in archives.iterdir()} == before


def test_a_run_with_bilingual_models_and_a_directory_without_a_run_are_refused(results, tmp_path):
    with pytest.raises(ValueError, match=r"has bilingual models, .* train it with baselines=none"):
        keep_run(results, tmp_path)
    with pytest.raises(ValueError, match=r"has no run.json; keep a finished run"):
        keep_run(tmp_path, tmp_path)
    with pytest.raises(ValueError, match=r"has no archive of a run; keep one there first"):
        restore(tmp_path, tmp_path / "runs")
