"""The report has the rows that augmentation changed, by kind, and nothing where none was changed."""

from eval.records.results import load_results
from eval.report.page import write_report
from eval.report.sections.augmentation import AugmentedRows, augmented_rows
from eval.score.run import write_scores
from tests.unit.eval.conftest import MakeRun
from tests.unit.eval.report.test_page import Page

COUNTS = {"typos": {"drawn": 1200, "changed": 1100, "too_long": 30}}


def test_changed_rows_are_counted_by_kind(make_run: MakeRun) -> None:
    systems = {"moe": [{"parameters": 5, "augmented": COUNTS}], "bilingual": [{"pair": "de-en"}]}
    run = make_run(["de-en"], systems=systems)
    write_scores(run, n_resamples=20)
    results = load_results([("mine", run)])
    assert augmented_rows(results) == [AugmentedRows(run="mine", kind="typos", drawn=1200, changed=1100, too_long=30)]
    cells = [cell for cell in Page(write_report(run, results).read_text(encoding="utf-8")).text if cell]
    start = cells.index("typos")
    assert cells[start : start + 4] == ["typos", "1,200", "1,100", "30"]


def test_a_run_without_augmentation_has_no_such_table(make_run: MakeRun) -> None:
    run = make_run(["de-en"])
    write_scores(run, n_resamples=20)
    text = write_report(run, load_results([("mine", run)])).read_text(encoding="utf-8")
    assert "Changed training rows" not in text
