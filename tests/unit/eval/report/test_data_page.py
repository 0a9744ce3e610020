import json
from pathlib import Path
from typing import Any

import pytest

from eval.report.data_page import write_data
from tests.unit.eval.funnels import data_record
from tests.unit.eval.report.test_page import Page


def _page(run_dir: Path, **changes: Any) -> tuple[str, Page]:
    (run_dir / "data.json").write_text(json.dumps(data_record(**changes)), encoding="utf-8")
    text = write_data(run_dir).read_text(encoding="utf-8")
    return text, Page(text)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Page]:
    return _page(tmp_path_factory.mktemp("page"))


def test_the_page_shows_every_rule_and_only_columns_that_removed_something(written: tuple[str, Page]) -> None:
    _, page = written
    header = page.text[page.text.index("Pair") : page.text.index("fa-en")]
    columns = ["Pair", "Read", "Kept", "too long", "duplicate", "too many tokens", "Dev", "Test"]
    assert [cell for cell in header if cell] == columns
    body = [cell for cell in page.text[page.text.index("fa-en") : page.text.index("Rules")] if cell]
    assert body[:12] == ["fa-en", "1,000", "990", "99.0 %", "1", "0.1 %", "9", "0.9 %", "2", "0.2 %", "200", "200"]
    assert body[12:21] == ["tr-en", "100", "95", "95.0 %", "5", "5.0 %", "0", "0", "200"]
    assert body[22:] == ["all pairs", "1,100", "1,085", "98.6 %", "6", "0.5 %", "9", "0.8 %", "2", "0.2 %"]
    assert "Both sides are the same text. Removed nothing." in page.text
    assert "Not applied to fa-en: language: fa is not known." in page.text
    assert any("the text of 14 rows was changed" in text for text in page.text)
    assert {"corpus.rules.max_chars=500", "corpus.rules.identical=true"} <= set(page.text)


def test_sources_carry_licence_and_citation(written: tuple[str, Page]) -> None:
    _, page = written
    start = page.text.index("Sources")
    cells = [cell for cell in page.text[start : page.text.index("Removed rows")] if cell]
    assert cells[6:16] == ["books", "MPL-2.0", "2", "1,060", "1,058", "web", "not stated", "1", "40", "39"]
    assert cells[16:20] == ["books", "By books.", "web", "By web."]
    assert cells[20] == "Sources of each pair (3)"


def test_examples_are_those_of_the_record_cut_escaped_and_in_their_direction(written: tuple[str, Page]) -> None:
    text, page = written
    directions = [(attrs["lang"], attrs["dir"]) for tag, attrs in page.tags if tag == "dd" and "lang" in attrs]
    assert directions == [("fa", "rtl"), ("en", "ltr")] * 2
    assert "x" * 240 + " …" in page.text
    assert "x" * 241 not in text
    assert "en, 1,000 characters" in page.text
    assert {"<b>سلام</b>", "(empty)"} <= set(page.text)
    assert [tag for tag, _ in page.tags].count("b") == 0
    assert any("are not shown: none of tr-en." in text for text in page.text)


def test_the_page_needs_nothing_but_itself_and_is_the_same_every_time(
    written: tuple[str, Page], tmp_path: Path
) -> None:
    text, page = written
    assert text == _page(tmp_path)[0]
    links = page.attributes("src") + page.attributes("href") + page.attributes("xlink:href")
    ids = page.attributes("id")
    assert len(ids) == len(set(ids))
    assert all(link.startswith("#") and link[1:] in ids for link in links)
    for name in ("funnel.png", "funnel.svg", "funnel.csv"):
        assert (tmp_path / name).stat().st_size > 0
    with pytest.raises(ValueError, match="has no funnel"):
        _page(tmp_path, funnel={})


def test_dev_rows_that_are_in_a_test_set_are_said_in_csv_and_on_the_page(tmp_path: Path) -> None:
    record = data_record()
    record["funnel"]["fa-en"]["train"]["removed"]["held_out"] = 0
    record["funnel"]["fa-en"]["dev"] = {"read": 200, "removed": {"empty_side": 1, "held_out": 4}, "kept": 195}
    _, page = _page(tmp_path, funnel=record["funnel"])
    assert "of 200, 4 in a test set" in page.text
    assert (tmp_path / "funnel.csv").read_text().splitlines()[1:4] == [
        "fa-en,train,1000,7,1,0,9,0,990,2",
        "fa-en,dev,200,,,,,4,195,",
        "fa-en,test,200,,,,,,200,",
    ]


def test_removed_rows_can_be_hidden(tmp_path: Path, written: tuple[str, Page]) -> None:
    record = data_record()
    _, page = _page(tmp_path, examples={}, config=record["config"] | {"report": {"show": False}})
    words, section = (" ".join(" ".join(text).split()) for text in (page.text, written[1].text))
    note = "report.show=false hides them. The same command with report.show=true shows them."
    assert note in words
    assert "The first rows that each rule removed" not in words
    assert note not in section
    assert "report.show=false hides them. Rows of sources" in section
