"""The column on forgetting: a model against the one that its training started from, on the pairs of both."""

import shutil

import pytest

from eval.number_format import decimal, signed
from eval.records.results import load_results
from eval.records.scores import load_forgetting
from eval.report.markdown_summary import render_summary
from eval.report.score_table import text_table
from eval.report.summary import headline, summarise
from eval.score.run import write_scores
from tests.unit.eval.report.sections.score_pages import Rows, section_of


@pytest.fixture
def scored(make_run):
    """A run that translates de-en and ru-en and started from one that translated de-en alone, and better."""
    run_dir = make_run(["de-en", "ru-en"], damage={"moe": 0.4, "bilingual": 0.2}, num_lines=120)
    (run_dir / "translations" / "initial").mkdir()
    shutil.copy(run_dir / "translations" / "bilingual" / "de-en.jsonl", run_dir / "translations" / "initial")
    write_scores(run_dir, metrics=["bleu", "chrf"], n_resamples=50)
    return run_dir


def test_scores_before_and_since_are_those_of_the_translations(scored):
    rows = load_forgetting(scored)
    assert [(row.pair, row.metric, row.n_test) for row in rows] == [("de-en", "bleu", 120), ("de-en", "chrf", 120)]
    (run,) = load_results([("", scored)])
    score = {(row.system, row.metric): row.score for row in run.scores if row.pair == "de-en"}
    gains = {row.metric: row for row in run.gains if row.pair == "de-en"}
    for row in rows:  # the model before is a copy of the bilingual one
        assert (row.before, row.after) == (score["bilingual", row.metric], score["moe", row.metric])
        assert (row.delta, row.ci_low, row.ci_high) == (
            gains[row.metric].delta,
            gains[row.metric].ci_low,
            gains[row.metric].ci_high,
        )
        assert row.delta < 0


def test_tables_have_the_columns_and_the_headline_says_the_mean(scored):
    (run,) = load_results([("", scored)])
    (row, _), summaries = run.forgetting, summarise(run)
    lines = [line.split() for line in text_table(summaries).splitlines()]
    assert lines[0] == ["pair", "rows", "BLEU", "before", "since", "bilingual", "difference", "significant"]
    assert lines[1][3:5] == [decimal(row.before), signed(row.delta)]
    assert lines[2][3:5] == [decimal(None), signed(None)]
    table = [line.split(" | ") for line in render_summary(run, {}).splitlines()]
    assert table[0][3:5] == ["BLEU before", "since"]
    interval = f"[{signed(row.ci_low)}, {signed(row.ci_high)}]"
    assert table[2][3:5] == [decimal(row.before), f"{signed(row.delta)} {interval}"]
    assert table[3][3:5] == [decimal(None), signed(None)]
    sentence = (
        f"On the pair that it could translate before this training: {row.before:.1f} before, {signed(row.delta)} since."
    )
    assert headline(summaries).endswith(f" {sentence}")


def test_the_page_has_the_columns(scored):
    section = section_of(scored, [("one", scored)])
    (row, _) = load_forgetting(scored)
    head, de, ru, *means = Rows(section).rows[:5]
    assert head[4:6] == ["BLEU before", "ΔBLEU since"]
    interval = f"[{signed(row.ci_low)}, {signed(row.ci_high)}]"
    assert de[5:8] == [decimal(row.before), signed(row.delta), interval]
    assert ru[5:8] == [decimal(None), signed(None), ""]
    assert {len(line) for line in (ru, *means[:1])} == {len(de)}


def test_a_difference_on_few_lines_is_not_bold(scored):
    def cells(run_dir):
        page = Rows(section_of(run_dir, [("one", run_dir)])).text
        (row, _) = load_forgetting(run_dir)
        assert row.ci_high < 0
        return page.split(f"<td>{decimal(row.before)}</td>")[1].split(signed(row.delta))[0]

    assert cells(scored) == '<td class="sure">'
    shutil.copytree(scored, scored.with_name("few"))
    for path in scored.with_name("few").glob("translations/*/*.jsonl"):
        path.write_text("".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[:99]), encoding="utf-8")
    write_scores(scored.with_name("few"), metrics=["bleu", "chrf"], n_resamples=50)
    assert cells(scored.with_name("few")) == "<td>"


def test_a_run_from_random_weights_has_no_such_column(make_run):
    run_dir = make_run(["de-en"])
    write_scores(run_dir, metrics=["bleu"], n_resamples=10)
    assert not (run_dir / "forgetting.csv").exists()
    (run,) = load_results([("", run_dir)])
    text = [text_table(summarise(run)), render_summary(run, {}), headline(summarise(run))]
    assert not any("before" in part or "since" in part for part in text)
    assert Rows(section_of(run_dir, [("one", run_dir)])).rows[0][4].startswith("BLEU bilingual")
