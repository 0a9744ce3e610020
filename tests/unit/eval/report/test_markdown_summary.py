"""The file summary.md of a run, and the README's table of the demo, which has the same form."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from eval.__main__ import main
from eval.records.scores import BASELINE, SYSTEM, SignificanceRow, save_scores, save_significance
from eval.report.markdown_summary import MARKERS, render_summary, table_head, table_row
from eval.report.summary import PairSummary
from tests.unit.eval.finished import finished

README = (Path(__file__).parents[4] / "README.md").read_text(encoding="utf-8")
ROW = re.compile(
    r"\| (\S+) \| ([\d,]+) \| ([\d.]+)( †)? \| ([\d.]+)( †)? \| ([+−]?[\d.]+) \[([+−]?[\d.]+), ([+−]?[\d.]+)\] \|",
)

NOTE = "† ended by budget while still improving."


def gain(pair: str, delta: float, low: float, high: float) -> SignificanceRow:
    return SignificanceRow(
        pair=pair, metric="bleu", delta=delta, ci_low=low, ci_high=high, p_value=0.01, n_resamples=1000, seed=1
    )


def number(text: str) -> float:
    return float(text.replace("−", "-").replace(",", ""))


def render_again(row: str) -> str:
    """Parse a row of the table, and return the row that the code writes for its values."""
    match = ROW.fullmatch(row)
    assert match, row
    pair, count, moe_text, moe_mark, bilingual_text, bilingual_mark, *differences = match.groups()
    moe, bilingual, delta, low, high = map(number, (moe_text, bilingual_text, *differences))
    unfinished = frozenset(name for name, mark in ((SYSTEM, moe_mark), (BASELINE, bilingual_mark)) if mark)
    run = finished("demo", experts=8, bleu=moe, bilingual=bilingual, sizes={pair: 1})
    scores = {(s.system, s.metric): replace(s, score=moe if s.system == SYSTEM else bilingual) for s in run.scores}
    summary = PairSummary(
        pair=pair,
        train_pairs=int(number(count)),
        n_test=300,
        scores=scores,
        gains={"bleu": gain(pair, delta, low, high)},
        unfinished=unfinished,
    )
    return table_row(summary)


def test_the_table_of_the_readme_is_in_the_form_that_a_run_writes() -> None:
    block = README.partition(MARKERS[0])[2].partition(MARKERS[1])[0]
    *table, empty, line = block.replace(f"\n{NOTE}\n", "").strip().splitlines()
    assert table[:2] == table_head("MoE")
    assert len(table) == 2 + 7
    assert [render_again(row) for row in table[2:]] == table[2:]
    assert (NOTE in block) == ("†" in "".join(table))
    assert empty == ""
    work = "the whole command|\\d+ stages; earlier commands had finished the others"
    assert re.fullmatch(rf"(\d+ h )?\d+ min( \d\d s)? for ({work}); \D.*, \d+ cores; .*\d{{4}}-\d\d-\d\d\.", line)


def test_a_table_has_scores_differences_and_minus_signs_by_decreasing_resource() -> None:
    run = finished("demo", experts=8, bleu=10.0, bilingual=10.5, sizes={"de-en": 12345, "tr-en": 100})
    run = replace(run, gains=(gain("de-en", -0.5, -1.25, 0.3), gain("tr-en", 0.5, 0.01, 1.0)))
    assert render_summary(run, {}).splitlines()[2:4] == [
        "| de-en | 12,345 | 10.0 | 10.5 | −0.5 [−1.2, +0.3] |",
        "| tr-en | 100 | 11.0 | 10.5 | +0.5 [0.0, +1.0] |",
    ]


def test_models_that_their_budget_cut_off_have_a_mark_and_a_note() -> None:
    cut_off = {"stopped": "budget", "steps": 50, "best_step": 50, "validate_every": 10, "patience": 4}
    run = finished("demo", experts=8, bleu=10.0, bilingual=9.0, sizes={"de-en": 7}, ledger=cut_off)
    run = replace(run, gains=(gain("de-en", 1.0, 0.5, 1.5),))
    *_, row, empty, note, _, last = render_summary(run, {}).splitlines()
    assert row == "| de-en | 7 | 10.0 † | 9.0 † | +1.0 [+0.5, +1.5] |"
    assert (empty, note) == ("", NOTE)
    assert last.startswith("commit")
    assert render_again(row) == row


def test_a_pair_without_a_verdict_says_so_and_why() -> None:
    run = finished("demo", experts=8, bleu=10.0, bilingual=9.0, sizes={"de-en": 70, "fr-en": 60, "tr-en": 7})
    gains = tuple(gain(pair, 1.0, 0.5, 1.5) for pair in run.record.pairs)
    scores = tuple(
        replace(row, n_test=99) if row.pair == "de-en" else replace(row, score=0.5) if row.pair == "fr-en" else row
        for row in run.scores
    )
    lines = render_summary(replace(run, scores=scores, gains=gains), {}).splitlines()
    assert lines[2:7] == [
        "| de-en | 70 | 10.0 | 9.0 | +1.0 [+0.5, +1.5], no verdict |",
        "| fr-en | 60 | 0.5 | 0.5 | +1.0 [+0.5, +1.5], no verdict |",
        "| tr-en | 7 | 11.0 | 9.0 | +1.0 [+0.5, +1.5] |",
        "",
        "No verdict, neither significant nor not: de-en (under 100 test lines), fr-en (all below BLEU 1).",
    ]
    assert "erdict" not in render_summary(replace(run, gains=gains), {})
    without_baselines = finished("dense", sizes={"de-en": 7})
    few = tuple(replace(row, n_test=99) for row in without_baselines.scores)
    assert "erdict" not in render_summary(replace(without_baselines, scores=few), {})


def test_without_baselines_their_columns_are_empty() -> None:
    text = render_summary(finished("dense", sizes={"de-en": 7}), {})
    assert text.splitlines()[0] == table_head("dense")[0]
    assert text.splitlines()[2] == "| de-en | 7 | 10.0 | – | – |"


@pytest.mark.parametrize(
    ("command", "time"),
    [
        ({"seconds": 723.4, "made": 60, "earlier": 0}, "12 min 03 s for the whole command; "),
        ({"seconds": 30.0, "made": 5, "earlier": 55}, "30 s for 5 stages; earlier commands had finished the others; "),
        ({}, ""),
    ],
)
def test_the_line_says_time_machine_versions_commit_and_date(command: dict[str, float], time: str) -> None:
    run = finished("demo", sizes={"de-en": 7})
    environment = {"python": "3.11.7", "torch": "2.13.0", "cpu": "A Processor", "cores": 2}
    run = replace(run, record=replace(run.record, environment=environment, created="2026-11-22T10:00:00+00:00"))
    assert render_summary(run, command).splitlines()[-1] == (
        f"{time}A Processor, 2 cores; python 3.11.7, torch 2.13.0; commit 0123456789abcdef; 2026-11-22."
    )


def test_the_command_puts_a_run_into_a_readme(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = finished("demo", experts=8, bilingual=9.0, sizes={"de-en": 7})
    record = {"name": "demo", "pairs": ["de-en"], "train_pairs": {"de-en": 7}, "config": run.record.config}
    record |= {"created": "2026-11-22T10:00:00+00:00"}
    (tmp_path / "run.json").write_text(json.dumps(record), encoding="utf-8")
    save_scores(tmp_path / "scores.csv", run.scores)
    save_significance(tmp_path / "significance.csv", [gain("de-en", 2.0, 1.0, 3.0)])
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n\n{MARKERS[0]}\nold\n\n{MARKERS[1]}\nafter\n", encoding="utf-8")
    for _ in range(2):  # a second time changes nothing
        assert main(["summary", str(tmp_path), "--into", str(readme)]) == 0
        text = (tmp_path / "summary.md").read_text(encoding="utf-8")
        assert readme.read_text(encoding="utf-8") == f"before\n\n{MARKERS[0]}\n{text}\n{MARKERS[1]}\nafter\n"
    assert "| de-en | 7 | 10.0 | 9.0 | +2.0 [+1.0, +3.0] |" in text
    readme.write_text("no table\n", encoding="utf-8")
    assert main(["summary", str(tmp_path), "--into", str(readme)]) == 2
    assert f"{readme} lacks the lines {MARKERS[0].strip()}" in capsys.readouterr().err
    assert readme.read_text(encoding="utf-8") == "no table\n"
