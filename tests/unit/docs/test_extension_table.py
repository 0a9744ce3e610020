"""docs/fine-tuning.md: its sentences on two added languages agree with their table and with the scores of old pairs."""

import csv
import re

from bench.output import RESULTS
from bench.published.cells import read
from pipeline.config import ROOT

ROWS = {(row["text"], row["system"]): row for row in read(RESULTS / "extension-amd-epyc.csv")}
WORDS = re.sub(r"\s+", " ", (ROOT / "docs" / "fine-tuning.md").read_text(encoding="utf-8"))
NEW = ("el-en", "uk-en")


def value(text, system, column):
    return float(ROWS[text, system][column])


def test_the_extended_model_is_better_than_a_new_one_and_than_bilingual_ones():
    for text in NEW:
        for system in ("from start", "bilingual"):
            for metric in ("bleu", "chrf++"):
                assert value(text, system, f"{metric}_delta_high") < 0
    assert (
        "far better than a model of all 38 that starts anew with the same budget, and better than a bilingual" in WORDS
    )


def test_a_model_of_the_new_pairs_alone_is_better_still():
    assert f"by {value('uk-en', 'new pairs', 'bleu_delta'):.1f} BLEU on Ukrainian and by chrF++ on Greek" in WORDS
    assert value("uk-en", "new pairs", "bleu_delta_low") > 0
    assert value("el-en", "new pairs", "chrf++_delta_low") > 0
    assert value("el-en", "new pairs", "bleu_delta_low") < 0  # so BLEU is not named there


def test_old_pairs_gain():
    gain = -value("others", "before", "bleu_delta")
    assert f"The other pairs gain {gain:.1f} BLEU" in WORDS
    with (ROOT / "recipes" / "finetune" / "freesoft38_forgetting.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["metric"] == "bleu"]
    worse, better = (
        [row for row in rows if sign * float(row[bound]) > 0] for sign, bound in ((-1, "delta_high"), (1, "delta_low"))
    )
    assert worse == []
    assert f"no pair of the {len(rows)} is worse and {len(better)} are better" in WORDS
    assert abs(sum(float(row["delta"]) for row in rows) / len(rows) - gain) < 1e-3
