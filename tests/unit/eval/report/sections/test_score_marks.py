import json

from tests.unit.eval.conftest import MakeRun
from tests.unit.eval.report.sections.score_pages import Rows, scored_run, section_of


def test_a_test_set_under_100_lines_gets_no_verdict_and_that_is_said(make_run: MakeRun) -> None:
    _, run_dir = scored_run(make_run, "one", {"moe": 0.1, "bilingual": 0.5}, ["de-en", "fr-en"], 99)
    page = Rows(section_of(run_dir, [("one", run_dir)]))
    rows = [row for row in page.rows if row[0] == "de-en"]
    assert ["no verdict" in row for row in rows] == [True] * 2
    assert not any("*" in cell for row in rows for cell in row)
    assert 'class="sure"' not in page.text
    assert "can carry none: de-en, fr-en (under 100 test lines)." in page.text
    assert [row[3:5] for row in page.rows if row[1:2] == ["bilingual"]] == [["2", "2"]] * 2


def test_models_that_their_budget_cut_off_have_a_mark(make_run: MakeRun) -> None:
    _, run_dir = scored_run(make_run, "one", {"moe": 0.2, "bilingual": 0.4}, ["de-en", "fr-en"])
    record = json.loads((run_dir / "run.json").read_text())
    for ledgers in record["systems"].values():
        for ledger in ledgers:
            cut_off = ledger["pair"] != "fr-en"
            ledger |= {"best_step": 900, "validate_every": 50, "patience": 4}
            ledger["stopped"] = "budget" if cut_off else "patience"
    (run_dir / "run.json").write_text(json.dumps(record))
    page = Rows(section_of(run_dir, [("one", run_dir)]))
    marked = {row[0]: (row[3].endswith("†"), row[5].endswith("†")) for row in page.rows if row[0] in ("de-en", "fr-en")}
    assert marked == {"de-en": (True, True), "fr-en": (True, False)}
    assert "† ended by budget while still improving" in page.text
