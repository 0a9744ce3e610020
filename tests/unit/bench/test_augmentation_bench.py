"""The benchmark of augmentation compares losses by kind, with intervals that count lines and seeds."""

import json

import numpy as np
import pytest

import bench.quality.augmentation as augmentation
from bench.output import write_csv
from pipeline.batch.config import AUGMENTATIONS
from tests.unit.eval.conftest import write_jsonl

PAIRS = ("de-en", "tr-en")
TEXTS = [f"the street number {number} in Hannover is closed" for number in range(30)]


def write_run(directory, spoiled):
    """Write a challenge set whose plain lines are right. spoiled: how many of the lines with typos are wrong."""
    challenge = directory / "test_sets" / "challenge"
    for pair in PAIRS:
        plain = [{"reference": text, "hypothesis": text, "kind": "plain"} for text in TEXTS]
        typos = [{**line, "kind": "typos"} for line in plain]
        for line in typos[:spoiled]:
            line["hypothesis"] = "zzz"
        numbered = [
            {"source": "", **line, "plain_line": number}
            for side in (plain, typos)
            for number, line in enumerate(side, 1)
        ]
        write_jsonl(challenge / "translations" / "moe" / f"{pair}.jsonl", numbered)
    record = {"name": "r", "pairs": PAIRS, "train_pairs": dict.fromkeys(PAIRS, 5), "systems": {"moe": []}}
    (challenge / "run.json").write_text(json.dumps(record))
    return directory


@pytest.fixture
def runs(tmp_path):
    spoiled = {"without": (15, 18), "with": (3, 0)}
    return {
        way: [write_run(tmp_path / f"{way}-{number}", number) for number in numbers] for way, numbers in spoiled.items()
    }


def test_the_gain_is_the_difference_of_the_losses(runs, tmp_path):
    plain, typos = augmentation.compare(runs, resamples=200)
    assert (plain["kind"], plain["gain"], plain["loss_with"]) == ("plain", 0, None)
    assert plain["plain_with"] == pytest.approx(100)
    assert (typos["kind"], typos["pairs"], typos["lines"]) == ("typos", 2, 60)
    assert typos["gain"] == pytest.approx(typos["loss_without"] - typos["loss_with"])
    assert 0 < typos["ci_low"] < typos["gain"] < typos["ci_high"]
    assert "changed_gain" not in plain
    assert typos["changed_with"] == pytest.approx(typos["plain_with"] - typos["loss_with"])
    assert typos["changed_gain"] == pytest.approx(typos["changed_with"] - typos["changed_without"])
    assert 0 < typos["changed_low"] < typos["changed_gain"] < typos["changed_high"]
    lines = augmentation.table([plain, typos]).splitlines()
    assert [line.split()[0] for line in lines] == ["kind", "plain", "typos"]
    about = {"recipe": "r", "device": "d", "augment": "a", "seeds": "1 2"}
    write_csv([{**about, **row} for row in (plain, typos)], augmentation.COLUMNS, tmp_path / "out.csv")
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 3


def test_few_lines_have_no_interval(runs, monkeypatch):
    monkeypatch.setattr(augmentation, "MIN_LINES", 31)
    rows = augmentation.compare(runs, resamples=100)
    assert {(row["ci_low"], row["ci_high"]) for row in rows} == {(None, None)}
    assert " to " not in augmentation.table(rows)


def test_a_model_that_is_worse_on_all_lines_loses_less_and_gains_nothing(tmp_path):
    """A model whose translations are all empty loses nothing by typos, which is no gain on them."""
    runs = {"without": [write_run(tmp_path / f"good-{seed}", 15) for seed in (1, 2)]}
    runs["with"] = [write_run(tmp_path / f"empty-{seed}", 0) for seed in (1, 2)]
    for run in runs["with"]:
        for file in run.glob("test_sets/challenge/translations/moe/*.jsonl"):
            lines = [{**json.loads(line), "hypothesis": ""} for line in file.read_text().splitlines()]
            write_jsonl(file, lines)
    typos = augmentation.compare(runs, resamples=100)[1]
    assert typos["gain"] > 0
    assert typos["changed_gain"] == pytest.approx(-typos["changed_without"])


def test_intervals_count_the_seeds(runs):
    """The two seeds of a way are drawn one by one, so a way of two unequal seeds has the wider interval."""
    (_, unequal), (_, equal) = (
        augmentation.compare({**runs, "without": [runs["without"][seed] for seed in seeds]}, resamples=200)
        for seeds in ((0, 1), (0, 0))
    )
    assert unequal["ci_high"] - unequal["ci_low"] > equal["ci_high"] - equal["ci_low"]
    mean = augmentation._mean_over_seeds([np.array([1.0, 1, 1]), np.array([3.0, 3, 3])])
    assert mean[0] == 2
    assert {*mean[1:]} <= {1.0, 3.0}


def parsed(monkeypatch, *words):
    monkeypatch.setattr("sys.argv", ["augmentation", *words])
    return augmentation.parse()


def test_ways_differ_in_augmentation_alone_and_seeds_in_the_seed(monkeypatch):
    configs = augmentation.configurations(parsed(monkeypatch, "--recipe", "smoke", "--quick", "train.max_tokens=9"))
    names = [config.name.rpartition("-")[0] for way in augmentation.WAYS for config in configs[way]]
    assert names == [
        *("augment-smoke-without-1", "augment-smoke-without-2", "augment-smoke-with-1", "augment-smoke-with-2")
    ]
    first, second = configs["with"]
    assert set(first.batch.augment) == set(AUGMENTATIONS)
    assert (first.train.seed, second.train.seed, first.train.max_tokens) == (1, 2, 9)
    assert configs["without"][0].batch.augment == {}
    assert configs["without"][0].score.test_sets == ["own", "challenge"]
    assert configs["without"][0].baselines.tiers == []


def test_other_shares_and_settings_are_other_runs(monkeypatch):
    words = [[], ["--quick"], ["train.max_tokens=9"], ["--augment", "upper=0.1"]]
    options = [parsed(monkeypatch, "--recipe=smoke", *more) for more in [*words, words[0]]]
    names = [tuple(config.name for config in augmentation.configurations(option)["without"]) for option in options]
    assert names[0] == names[-1]
    assert len({*names}) == len(words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seeds", "1"], "--seeds=1: an interval that counts seeds needs two of them"),
        (
            ["--augment", "upper=0.1", "train.max_tokens=9"],
            "--augment: train.max_tokens=9 is no share; write settings before --augment",
        ),
        (["--seeds", "1", "1"], "--seeds=1 1 names a seed twice"),
        (["--resamples", "10"], "--resamples=10: an interval needs at least 100"),
    ],
)
def test_wrong_options_are_errors(monkeypatch, capsys, words, message):
    with pytest.raises(SystemExit):
        parsed(monkeypatch, *words)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--augment", "typo=0.1"], "batch.augment.typo does not exist; did you mean typos"),
        (["+batch.augment.typos=0.2"], "has batch.augment={'typos': 0.2}, so that no training is without it"),
    ],
)
def test_wrong_shares_are_errors_before_any_training(monkeypatch, capsys, words, message):
    parsed(monkeypatch, "--recipe", "smoke", *words)
    assert augmentation.main() == 2
    assert message in capsys.readouterr().err
