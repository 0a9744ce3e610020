"""The benchmark of noise: what is injected is known, what is removed is counted, and the command runs."""

import argparse
import csv
import re
import time
from statistics import fmean

import pytest

from bench.data import noise
from bench.data.injection import COPIED, KINDS, MISALIGNED, TRUNCATED, WRONG_LANGUAGE, Row, inject
from bench.data.noise import (
    CLEAN,
    DUAL,
    METHODS,
    NONE,
    QUICK,
    RULES,
    RULES_OFF,
    TOGETHER,
    TRAINED,
    judge,
    overrides_of,
    read,
)
from bench.published.cells import measurements
from pipeline.config import ROOT, load_config
from pipeline.corpus.learned_config import DualCleaning

ROWS = [(f"Zeile Nummer {n} im Text", f"line number {n} of text") for n in range(100)]
FOREIGN = [f"ligne {n}" for n in range(3)]


def test_a_fifth_is_damaged_in_equal_parts_and_the_rest_is_as_it_was():
    rows = inject(ROWS, FOREIGN, 0.2, 1)
    by_kind = {kind: [n for n, row in enumerate(rows) if row.kind == kind] for kind in KINDS}
    assert {kind: len(numbers) for kind, numbers in by_kind.items()} == dict.fromkeys(KINDS, 5)
    assert all(row[:2] == ROWS[n] for n, row in enumerate(rows) if not row.kind)
    assert [row.src for row in rows] == [src for src, _ in ROWS]
    assert all(rows[n].tgt == rows[n].src for n in by_kind[COPIED])
    assert all(rows[n].tgt == "line number" for n in by_kind[TRUNCATED])
    assert all(rows[n].tgt in FOREIGN for n in by_kind[WRONG_LANGUAGE])
    targets = [rows[n].tgt for n in by_kind[MISALIGNED]]
    assert all(rows[n].tgt != ROWS[n][1] for n in by_kind[MISALIGNED])
    assert sorted(targets) == sorted(ROWS[n][1] for n in by_kind[MISALIGNED])
    assert rows == inject(ROWS, FOREIGN, 0.2, 1)
    assert rows != inject(ROWS, FOREIGN, 0.2, 2)


def test_too_few_rows_are_refused():
    with pytest.raises(ValueError, match=r"8 rows and 3 texts .* are too few for 20% of noise of 4 kinds"):
        inject(ROWS[:8], FOREIGN, 0.2, 1)
    with pytest.raises(ValueError, match="give more rows of 4 words or more"):
        inject([("a b", f"c {n}") for n in range(100)], FOREIGN, 0.2, 1)


@pytest.mark.parametrize("share", [0, 1.5])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(ValueError, match=f"--noise {share} is no share of the rows; choose more than 0"):
        inject(ROWS, FOREIGN, share, 1)


def test_the_time_of_an_injection_grows_with_the_rows():
    """A search for every row among all others takes a minute here; the limit is fifty times what is needed."""
    began = time.process_time()
    inject(ROWS * 500, FOREIGN, 0.2, 1)
    assert time.process_time() - began < 10


def test_precision_and_recall_by_hand():
    damaged = [Row("a", "b", kind) for kind in KINDS]  # equal rows: it does not matter which of them is kept
    damaged = [Row(row.src, f"{row.tgt}{n}", row.kind) for n, row in enumerate(damaged)] + [
        Row("c", "d"),
        Row("e", "f"),
    ]
    judged = {row["kind"]: row for row in judge(damaged, [("a", "b1"), ("e", "f")])}
    assert [judged[kind]["recall"] for kind in KINDS] == [1.0, 0.0, 1.0, 1.0]
    assert (judged["all"]["recall"], judged["all"]["precision"]) == (0.75, 0.75)


def test_methods_are_settings_of_a_run():
    shares = {DUAL: 0.2, TOGETHER: 0.125}
    configs = {m: load_config(overrides_of(m, shares, QUICK)).corpus for m in (NONE, RULES, DUAL, TOGETHER, CLEAN)}
    assert configs[RULES] == load_config([]).corpus
    assert configs[NONE] == configs[CLEAN]
    assert configs[NONE].rules.language is configs[NONE].rules.duplicates is configs[NONE].learned is None
    assert isinstance(configs[DUAL].learned, DualCleaning)
    assert (configs[DUAL].learned.remove, configs[DUAL].learned.dim, configs[DUAL].rules) == (
        *(0.2, 16),
        configs[NONE].rules,
    )
    assert (configs[TOGETHER].learned.remove, configs[TOGETHER].rules) == (0.125, configs[RULES].rules)
    assert len(RULES_OFF) > 10


def test_rows_of_a_file_of_the_user_are_read(tmp_path):
    path, foreign = tmp_path / "de-en.tsv", tmp_path / "fr.txt"
    path.write_text("".join(f"Zeile {n}\tline {n}\n" for n in range(600)))
    foreign.write_text("un\ndeux\n")
    pair, texts, lines = read(path, foreign, 50)
    assert (pair.name, lines) == ("de-en", ["un", "deux"])
    assert {split: len(rows) for split, rows in texts.items()} == {"train": 50, "dev": 200, "test": 300}
    assert texts["train"][0] == ("Zeile 500", "line 500")


def test_the_command_says_what_the_rules_remove(tmp_path, monkeypatch, capsys):
    words = [
        "--quick",
        "--methods",
        "rules",
        "--out",
        str(tmp_path / "noise.csv"),
        "--work",
        str(tmp_path / "new" / "work"),
    ]
    monkeypatch.setattr("sys.argv", ["noise", *words])
    tables = []
    for _ in range(2):
        assert noise.main() == 0
        with (tmp_path / "noise.csv").open(encoding="utf-8") as file:
            tables.append({row["kind"]: row for row in csv.DictReader(file)})
    rows = tables[0]
    assert tables[1] == rows, "the time of stages that are there already counts too"
    assert float(rows["all"]["seconds"]) > 0
    assert list(rows) == [*KINDS, "all"]
    assert rows[COPIED]["recall"] == "1", "the rule on identical sides removes every copy"
    assert float(rows[WRONG_LANGUAGE]["recall"]) > 0.5
    assert float(rows[MISALIGNED]["recall"]) < 0.5
    assert rows["all"]["command"].startswith("python -m bench.data.noise --quick")
    assert "precision %" in capsys.readouterr().out


def test_the_share_of_both_together_is_that_of_the_noise(tmp_path, monkeypatch):
    """The rules remove 6 of 100 rows, 20 of which are damaged; small models then remove 14 of the other 94."""
    calls = []

    def cleaned_rows(config):
        calls.append(config.corpus)
        return ROWS if len(calls) == 1 else damaged[6:], 1.0

    damaged = [row[:2] for row in inject(ROWS, FOREIGN, 0.2, 1)]
    monkeypatch.setattr(noise, "cleaned_rows", cleaned_rows)
    place = noise.Place(root=tmp_path, pair=load_pair(), recipe="smoke", overrides=[])
    options = argparse.Namespace(noise=0.2, seed=1, methods=METHODS, train=[], seeds=[1])
    rows = list(noise.measure(place, {"train": ROWS}, FOREIGN, options, ""))
    assert [row["method"] for row in rows if row["kind"] == "all"] == list(METHODS)
    has_precision = {row["method"]: row["precision"] is not None for row in rows if row["kind"] == "all"}
    assert has_precision == {RULES: False, DUAL: True, TOGETHER: True}, "undamaged rows pass the rules by construction"
    assert calls[3].learned.remove == pytest.approx(14 / 94, abs=1e-6)
    assert calls[1].learned is None


def load_pair():
    return read(None, None, 1)[0]


def test_the_conclusion_of_the_page_is_that_of_the_measurement():
    rows = [row for _, row in measurements("noise")]
    page = (ROOT / "docs" / "cleaning.md").read_text(encoding="utf-8")
    recall = {(row["method"], row["kind"]): float(row["recall"]) for row in rows if row["kind"]}
    assert all(recall[RULES, kind] > 0.95 for kind in (COPIED, WRONG_LANGUAGE))
    assert all(recall[method, TRUNCATED] < 0.25 for method in METHODS)
    assert all(0.45 < recall[method, MISALIGNED] < 0.55 for method in (DUAL, TOGETHER))
    (precision,) = (float(row["precision"]) for row in rows if (row["method"], row["kind"]) == (DUAL, "all"))
    assert 0.45 < precision < 0.55
    scores = {
        method: [float(row["bleu"]) for row in rows if row["method"] == method and row["bleu"]] for method in TRAINED
    }
    mean = {method: fmean(values) for method, values in scores.items()}
    sentence = re.search(
        r"Noise costs (\S+) BLEU here, and rules win back (\S+) of it. .* add (\S+) is not shown: .* by (\S+),", page
    )
    assert sentence is not None
    gains = mean[CLEAN] - mean[NONE], mean[RULES] - mean[NONE], mean[TOGETHER] - mean[RULES]
    assert sentence.groups() == tuple(f"{value:.1f}" for value in (*gains, max(scores[RULES]) - min(scores[RULES])))
    assert {len(values) for values in scores.values()} == {2}
    assert {row["commit"][:7] for row in rows} == {"684c543"}
