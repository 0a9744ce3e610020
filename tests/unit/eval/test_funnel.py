import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from eval.data_page import write_data
from eval.figure_style import save_figure
from eval.funnel import HeldOutFunnel, PairFunnel, load_funnels, save_funnel, settings_of, text_table, total
from eval.funnel_plot import plot_funnel
from eval.number_format import share
from tests.unit.eval.test_report import Page

RULES = ["empty_side", "too_long", "length_ratio", "identical", "few_letters", "digits", "sentence_ends"]
RULES += ["script", "held_out", "language", "duplicate", "near_duplicate"]


def _funnel(pair: str, read: int, removed: dict[str, int], dropped: int | None = 0) -> PairFunnel:
    held_out = {
        "dev": HeldOutFunnel(read=204, removed={"empty_side": 1, "held_out": 3}, kept=200),
        "test": HeldOutFunnel(read=300, removed={"empty_side": 2}, kept=298),
    }
    kept = read - sum(removed.values())
    return PairFunnel(
        pair=pair, read=read, changed=0, removed=removed, kept=kept, too_many_tokens=dropped, held_out=held_out
    )


def _record(**changes: Any) -> dict[str, Any]:
    def splits(read: int, removed: dict[str, int]) -> dict[str, Any]:
        held_out = {"read": 200, "removed": {"empty_side": 0}, "kept": 200}
        train = {"read": read, "changed": 7, "removed": removed, "kept": read - sum(removed.values())}
        return {"train": train, "dev": held_out, "test": held_out}

    def source(name: str, licence: str, read: int) -> dict[str, Any]:
        return {"name": name, "tag": "", "licence": licence, "citation": f"By {name}.", "read": read, "kept": read - 1}

    record: dict[str, Any] = {
        "name": "mine",
        "recipe": "demo",
        "pairs": ["tr-en", "fa-en"],
        "train_pairs": {"tr-en": 95, "fa-en": 990},
        "funnel": {
            "tr-en": splits(100, {"too_long": 5, "identical": 0, "duplicate": 0}),
            "fa-en": splits(1000, {"too_long": 1, "identical": 0, "duplicate": 9}),
        },
        "encoded": {"tr-en": {"rows": 95, "dropped": 0}, "fa-en": {"rows": 988, "dropped": 2}},
        "sources": {
            "tr-en": [source("books", "MPL-2.0", 60), source("web", "", 40)],
            "fa-en": [source("books", "MPL-2.0", 1000)],
        },
        "examples": {"fa-en": {"too_long": [["سلام " * 200, "x" * 1000]], "duplicate": [["<b>سلام</b>", ""]]}},
        "not_judged": {"fa-en": ["language: fa is not known"]},
        "config": {"corpus": {"rules": {"max_chars": 500, "identical": True}}},
    }
    return {**record, **changes}


def _page(run_dir: Path, **changes: Any) -> tuple[str, Page]:
    (run_dir / "data.json").write_text(json.dumps(_record(**changes)), encoding="utf-8")
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
    shown = [attrs for tag, attrs in page.tags if tag == "dd" and "lang" in attrs]
    assert [(attrs["lang"], attrs["dir"]) for attrs in shown] == [("fa", "rtl"), ("en", "ltr")] * 2
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


def test_the_funnel_as_csv(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text(json.dumps(_record()), encoding="utf-8")
    save_funnel(tmp_path / "funnel.csv", load_funnels(tmp_path / "data.json"))
    assert (tmp_path / "funnel.csv").read_text().splitlines()[:4] == [
        "pair,split,read,changed,too_long,identical,duplicate,kept,too_many_tokens",
        "fa-en,train,1000,7,1,0,9,990,2",
        "fa-en,dev,200,,,,,200,",
        "fa-en,test,200,,,,,200,",
    ]


def test_dev_rows_that_are_in_a_test_set_are_said_in_csv_and_on_the_page(tmp_path: Path) -> None:
    record = _record()
    record["funnel"]["fa-en"]["train"]["removed"]["held_out"] = 0
    record["funnel"]["fa-en"]["dev"] = {"read": 200, "removed": {"empty_side": 1, "held_out": 4}, "kept": 195}
    _, page = _page(tmp_path, funnel=record["funnel"])
    assert "of 200, 4 in a test set" in page.text
    assert (tmp_path / "funnel.csv").read_text().splitlines()[1:4] == [
        "fa-en,train,1000,7,1,0,9,0,990,2",
        "fa-en,dev,200,,,,,4,195,",
        "fa-en,test,200,,,,,,200,",
    ]


def test_the_funnel_as_text() -> None:
    funnels = [
        _funnel("de-en", 60_000, {"too_long": 1, "few_letters": 300}),
        _funnel("zh-Hans-en", 1_000, {"too_long": 0, "few_letters": 0}, dropped=15),
    ]
    assert text_table(funnels).splitlines()[1:] == [
        "                             kept    too      few  too many",
        "pair          read    kept      %   long  letters    tokens  dev  test",
        "de-en       60,000  59,699   99.5  <0.01     0.50         0  200   298",
        "zh-Hans-en   1,000   1,000  100.0      0        0      1.50  200   298",
        "all pairs   61,000  60,699   99.5  <0.01     0.49      0.02",
    ]


def test_totals_do_not_hide_what_one_pair_does_not_say() -> None:
    both = [_funnel("de-en", 10, {"too_long": 1}), _funnel("tr-en", 10, {"identical": 2}, dropped=None)]
    everything = total(both)
    assert (everything.read, everything.kept, everything.removed) == (20, 17, {"too_long": 1, "identical": 2})
    assert everything.too_many_tokens is None


def _bars(figure: Figure) -> list[tuple[str, list[float], str, str]]:
    """(name, widths, colour, hatch) of each series."""
    return [
        (str(c.get_label()), [p.get_width() for p in c.patches], to_hex(c.patches[0].get_facecolor()), h or "")
        for c in figure.axes[0].containers
        for h in [c.patches[0].get_hatch()]
    ]


@pytest.mark.parametrize("count", [1, 7, 38])
def test_bars_are_the_shares_of_the_rules(tmp_path: Path, count: int) -> None:
    funnels = [_funnel(f"l{n}-en", 1000, {"too_long": 10, "held_out": n, "digits": 0}) for n in range(count)]
    figure = plot_funnel(funnels, {f"l{n}-en": f"l{n}" for n in range(count)})
    found = {name: widths for name, widths, _, _ in _bars(figure)}
    assert found["too long"] == [0.01] * count
    assert found.get("held out", [0]) == pytest.approx([n / 1000 for n in range(count)])
    assert "digits" not in found
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == [f"l{n}" for n in range(count)]
    assert axes.texts[0].get_text() == "990 of 1,000 kept"
    save_figure(figure, tmp_path / "funnel", ("svg",))
    assert b"990 of 1,000 kept" in (tmp_path / "funnel.svg").read_bytes()


def _looks(rules: Sequence[str]) -> list[tuple[str, list[float], str, str]]:
    return _bars(plot_funnel([_funnel("de-en", 1000, dict.fromkeys(rules, 2))], {}))


def test_twelve_rules_look_different_and_more_share_one_bar() -> None:
    assert len({(colour, hatch) for _, _, colour, hatch in _looks(RULES)}) == len(RULES) == 12
    names = [name for name, _, _, _ in _looks([*RULES, "mine", "yours"])]
    assert len(names) == 12
    assert names[-1] == "all other rules"
    assert _looks([*RULES, "mine", "yours"])[-1][1] == [pytest.approx(0.006)]


def test_nothing_removed_and_nothing_to_plot() -> None:
    figure = plot_funnel([_funnel("de-en", 10, {"too_long": 0})], {})
    assert figure.axes[0].get_xlim()[1] > 0.01
    assert not figure.legends
    with pytest.raises(ValueError, match="no pair"):
        plot_funnel([], {})


def test_settings_are_written_as_the_command_line_takes_them() -> None:
    config = {"corpus": {"rules": {"max_chars": 9, "duplicates": True, "held_out": {"shingle_words": 8}}}}
    assert settings_of("too_long", config) == ["corpus.rules.max_chars=9"]
    assert settings_of("held_out", config) == ["corpus.rules.held_out.shingle_words=8"]
    assert settings_of("duplicate", config) == ["corpus.rules.duplicates=true"]
    assert settings_of("language", config) == settings_of("mine", config) == settings_of("script", {}) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.0 %"), (1e-5, "<0.1 %"), (0.0123, "1.2 %"), (0.99999, ">99.9 %"), (1.0, "100 %")],
)
def test_shares(value: float, text: str) -> None:
    assert share(value) == text
