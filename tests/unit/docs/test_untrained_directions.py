"""docs/scoring.md: the table of directions that were not trained is that of recipes/freesoft38/europe."""

import csv
import re
from statistics import fmean

import pytest

from pipeline.config import ROOT, load_config
from tests.make import overrides_of

TEXT = (ROOT / "docs" / "scoring.md").read_text(encoding="utf-8")
SYSTEMS = {"one step": "moe", "two steps": "pivot"}
TEST_SETS = {"software documentation": "freesoft38", "news": "ntrex"}
ROWS = re.findall(rf"^\| ({'|'.join(TEST_SETS)}), (\d) \| ([a-z ]+) \| (.+) \|$", TEXT, re.MULTILINE)


def rows_of(test_set, kind):
    with (ROOT / "recipes" / "freesoft38" / "europe" / f"{test_set}_{kind}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(("text", "number", "title", "values"), ROWS)
def test_the_means_are_those_of_the_untrained_directions(text, number, title, values):
    test_set, system = TEST_SETS[text], SYSTEMS[title]
    scores, faults = (rows_of(test_set, kind) for kind in ("scores", "faults"))
    pairs = {row["pair"] for row in scores if row["train_pairs"] == "0"}
    assert len(pairs) == int(number)
    scored = [row for row in scores if row["pair"] in pairs and row["system"] == system]
    expected = [fmean(float(row["score"]) for row in scored if row["metric"] == name) for name in ("bleu", "chrf++")]
    counted = [row for row in faults if row["pair"] in pairs and row["system"] == system]
    expected += [
        100 * fmean(int(row[fault]) / int(row[total]) for row in counted)
        for fault, total in (("wrong_language", "judged"), ("faulty", "n_test"))
    ]
    assert values.replace(" %", "").split(" | ") == [f"{value:.1f}" for value in expected]


def test_the_training_has_six_directions():
    (command,) = re.findall(r"^(make train RECIPE=freesoft38/moe_8e NAME=europe .*)$", TEXT, re.MULTILINE)
    config = load_config(overrides_of("train", command))
    assert (len(config.pairs), config.baselines.tiers, config.train.max_tokens) == (6, [], 6_000_000)
    assert (config.model.moe.num_experts, config.corpus.path) == (8, "corpora/freesoft38")


def test_the_page_draws_no_conclusion_that_the_scores_do_not():
    assert len(ROWS) == 4
    scores = {
        (test_set, row["pair"], row["system"]): float(row["score"])
        for test_set in TEST_SETS.values()
        for row in rows_of(test_set, "scores")
        if row["metric"] == "bleu"
    }
    two_steps = {
        pair: score for (name, pair, system), score in scores.items() if (name, system) == ("freesoft38", "pivot")
    }
    assert all(score > scores["freesoft38", pair, "moe"] for pair, score in two_steps.items())
    english = [f"{scores[test_set, 'de-en', 'moe']:.1f}" for test_set in ("freesoft38", "ntrex")]
    assert re.search(rf"de-en has BLEU {english[0]} on the\s+first test set and {english[1]} on NTREX-128", TEXT)
    news = [row for row in rows_of("ntrex", "scores") if row["metric"] == "chrf++" and row["train_pairs"] == "0"]
    lowest = {row["pair"]: float(row["ci_low"]) for row in news if row["system"] == "moe"}
    assert all(float(row["ci_high"]) < lowest[row["pair"]] for row in news if row["system"] == "pivot")
    faulty = [row for row in rows_of("ntrex", "faults") if row["system"] in SYSTEMS.values()]
    assert all(int(row["repeated"]) > int(row["faulty"]) / 2 for row in faulty)
