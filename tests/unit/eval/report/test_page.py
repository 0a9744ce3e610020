import csv
import json
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from eval.records.results import RunResults, load_results
from eval.records.scores import load_scores
from eval.report.page import write_report
from eval.score.macro import macro_means
from eval.score.run import write_scores
from tests.unit.eval.conftest import MakeRun, config_of

VOID = {"meta", "br", "path", "use", "link", "img", "hr", "rect"}
SEVEN = ["de-en", "fr-en", "es-en", "ru-en", "zh-Hans-en", "ja-en", "tr-en"]
ELEVEN = ["de-en", "fr-en", "es-en", "ru-en", "zh-Hans-en", "ja-en", "tr-en", "ko-en", "el-en", "ar-en", "eu-en"]


class Page(HTMLParser):
    """The tags and texts of a page. It checks that elements are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data.strip())

    def attributes(self, name: str) -> list[str]:
        return [value for _, attrs in self.tags if (value := attrs.get(name)) is not None]


def _report(run_dir: Path) -> tuple[str, Page]:
    write_scores(run_dir, n_resamples=20)
    text = write_report(run_dir, load_results([("mine", run_dir)])).read_text(encoding="utf-8")
    return text, Page(text)


def _runs(make_run: MakeRun, *, pairs: Sequence[str] = SEVEN, **other: Any) -> list[RunResults]:
    """Make a dense run and two seeds of a run with experts. other: further keys of the dense run's record."""
    settings = {"dense": (0.3, config_of(0)), "moe_s1": (0.2, config_of(8)), "moe_s2": (0.25, config_of(8, seed=2))}
    directories = []
    for name, (damage, config) in settings.items():
        keys = {"config": config, **(other if name == "dense" else {})}
        directories.append((name, make_run(pairs, {"moe": damage, "bilingual": 0.4}, 20, name, **keys)))
        write_scores(directories[-1][1], n_resamples=20)
    return load_results(directories)


@pytest.mark.parametrize("pairs", [["de-en"], ELEVEN])
def test_report_is_self_contained_and_holds_every_score(make_run: MakeRun, pairs: list[str]) -> None:
    run_dir = make_run(pairs)
    text, page = _report(run_dir)
    links = page.attributes("src") + page.attributes("href") + page.attributes("xlink:href")
    ids = page.attributes("id")
    assert len(ids) == len(set(ids))
    assert links
    assert all(link[1:] in ids for link in links if link.startswith("#"))
    to_files = {link for link in links if not link.startswith("#")}
    assert to_files == {"translations.html", *(f"translations.html#pair={pair}" for pair in pairs)}
    assert "url(http" not in text
    assert "@import" not in text
    cells = set(page.text)
    for row in load_scores(run_dir / "scores.csv"):
        assert f"{row.score:.1f}" in cells
        assert row.signature in cells
    assert set(pairs) <= cells
    assert [tag for tag, _ in page.tags].count("figure") == 3
    assert all(attrs.get("aria-label") for tag, attrs in page.tags if tag == "svg")
    for name in (
        "trendline.png",
        "trendline.svg",
        "bleu_vs_resource.png",
        "bleu_vs_resource.svg",
        "loss.png",
        "loss_time.svg",
    ):
        assert (run_dir / name).stat().st_size > 0


def test_means_are_shown_by_resource_and_every_metric_has_its_column(make_run: MakeRun) -> None:
    run_dir = make_run(ELEVEN, num_lines=6)
    write_scores(run_dir, metrics=["bleu", "chrf", "ter"], n_resamples=10)
    page = Page(write_report(run_dir, load_results([("", run_dir)])).read_text(encoding="utf-8"))
    labels = [text for text in page.text if text.startswith("mean, ")]
    assert labels == ["mean, high (4)", "mean, medium (4)", "mean, low (3)", "mean, all (11)"] * 3
    assert {"1,500–6,000", "chrF", "TER"} <= set(page.text)
    assert "A lower TER is better." in " ".join(" ".join(page.text).split())
    assert "chrF++" not in page.text
    for row in macro_means(load_scores(run_dir / "scores.csv")):
        assert f"{row.score:.1f}" in page.text


def test_report_is_the_same_every_time(make_run: MakeRun) -> None:
    run_dir = make_run(["de-en", "fr-en"])
    assert _report(run_dir)[0] == _report(run_dir)[0]


def test_hostile_text_is_escaped_and_arabic_runs_from_the_right(make_run: MakeRun) -> None:
    hostile = '<script>alert("x")</script> & <img src="http://evil.example/x.png"> in a line'
    run_dir = make_run(["en-ar", "de-en"], num_lines=3, name=hostile, corpus={"notice": hostile})
    for system in ("moe", "bilingual"):
        path = run_dir / "translations" / system / "en-ar.jsonl"
        line = {"source": hostile, "hypothesis": hostile, "reference": "مرحبا بالعالم"}
        path.write_text((json.dumps(line) + "\n") * 3, encoding="utf-8")
    _, page = _report(run_dir)
    assert not {"script", "img"} & {tag for tag, _ in page.tags}
    assert page.text.count(hostile) >= 1 + 1 + 9
    directions = {(attrs["lang"], attrs["dir"]) for tag, attrs in page.tags if tag == "dd" and "lang" in attrs}
    assert directions == {("ar", "rtl"), ("en", "ltr"), ("de", "ltr")}


def test_the_page_may_run_no_script_and_load_nothing(make_run: MakeRun) -> None:
    text, page = _report(make_run(["de-en"]))
    (policy,) = [attrs for tag, attrs in page.tags if tag == "meta" and attrs.get("http-equiv")]
    assert policy["http-equiv"] == "Content-Security-Policy"
    rules = dict(rule.split(" ", 1) for rule in (policy["content"] or "").split("; "))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert not {"script-src", "connect-src", "frame-src"} & set(rules)  # default-src is of all of these
    assert text.index("Content-Security-Policy") < text.index("<title>")


@pytest.mark.parametrize(
    ("keys", "note"),
    [
        ({"sample_sentences": False}, "have a licence that is not known to allow it"),
        ({"sample_sentences": False, "config": {"report": {"show": False}}}, "hides them. The same command with"),
    ],
)
def test_where_sentences_are_not_shown_the_page_says_why(make_run: MakeRun, keys: dict[str, Any], note: str) -> None:
    _, page = _report(make_run(["de-en"], **keys))
    assert "Translations" in page.text
    assert note in " ".join(" ".join(page.text).split())
    assert not any(text.startswith("source ") for text in page.text)


def test_shown_sentences_say_how_to_hide_them(make_run: MakeRun) -> None:
    _, page = _report(make_run(["de-en"]))
    assert any(text.startswith("source ") for text in page.text)
    assert "report.show=false" in page.text


def test_a_single_model_is_called_by_what_it_is_and_its_run_by_name_in_the_file(make_run: MakeRun) -> None:
    run_dir = make_run(["de-en", "fr-en"], config=config_of(8))
    _, page = _report(run_dir)
    assert "mine" not in page.text
    assert page.text.count("multilingual MoE, 8 experts") > 3
    assert (run_dir / "sweep.csv").read_text(encoding="utf-8").splitlines()[1].startswith("mine,")
    descriptions = {}
    for experts, pairs in ((0, ["de-en"]), (4, ["de-en"]), (0, ["de-en", "fr-en"])):
        run_dir = make_run(pairs, config=config_of(experts))
        write_scores(run_dir, n_resamples=10)
        descriptions[experts, len(pairs)] = load_results([("", run_dir)])[0].description
    assert descriptions == {(0, 1): "dense model", (4, 1): "MoE, 4 experts", (0, 2): "multilingual dense model"}


def test_the_page_explains_what_it_shows_and_nothing_else(make_run: MakeRun) -> None:
    run_dir = make_run(["de-en", "fr-en"], baseline_boundaries=[4000])
    record = json.loads((run_dir / "run.json").read_text())
    for ledger in record["systems"]["bilingual"][:1]:
        ledger |= {"best_step": 900, "validate_every": 50, "patience": 4, "stopped": "budget"}
    (run_dir / "run.json").write_text(json.dumps(record))
    words = " ".join(" ".join(_report(run_dir)[1].text).split())
    assert "How to read this page" in words
    assert "The upright dotted line" in words
    assert "marks a model that ended by budget while still improving" in words
    assert "1 of 2 baselines ended by budget while still improving." in words
    assert "no verdict in 2 (under 100 test lines)" in words
    plain = " ".join(_report(make_run(["de-en"], damage={"moe": 0.3}))[1].text)
    assert not any(text in plain for text in ("The upright dotted line", "marks a model", "Significant"))


def test_a_bare_record_without_baselines_still_reports(make_run: MakeRun) -> None:
    run_dir = make_run(["de-en", "fr-en"], damage={"moe": 0.3}, funnel={}, config={}, corpus={}, commit=None)
    _, page = _report(run_dir)
    assert any("without bilingual baselines" in text for text in page.text)
    assert not (run_dir / "trendline.png").exists()


def test_funnel_config_and_corpus_are_shown(make_run: MakeRun) -> None:
    counts = {"train": {"read": 6060, "removed": {"too long": 41}, "kept": 6019}, "dev": {"read": 7, "kept": 7}}
    corpus = {"title": "LibreOffice help", "licence": "MPL-2.0"}
    search = {"de-en": {"candidate": "wide", "carried_over_from": None}}
    keys = {"funnel": {"de-en": counts}, "corpus": corpus, "baseline_search": search}
    _, page = _report(make_run(["de-en"], **keys))
    assert {"How the bilingual models were chosen", "wide", "searched"} <= set(page.text)
    assert {"6,060", "41", "too long", "6,019", "MPL-2.0"} <= set(page.text)
    assert "train.steps=900" in page.text


@pytest.mark.parametrize("name", ["run.json", "scores.csv", "significance.csv", "metrics.jsonl"])
def test_a_missing_file_is_named(make_run: MakeRun, name: str) -> None:
    run_dir = make_run(["de-en"])
    write_scores(run_dir, n_resamples=10)
    (run_dir / name).unlink()
    with pytest.raises(ValueError, match=f"{name} does not exist"):
        write_report(run_dir, load_results([("", run_dir)]))


def test_a_run_without_losses_leaves_nothing_behind(make_run: MakeRun, tmp_path: Path) -> None:
    runs = _runs(make_run)
    (runs[2].directory / "metrics.jsonl").unlink()
    with pytest.raises(ValueError, match=r"moe_s2/metrics\.jsonl does not exist"):
        write_report(tmp_path / "out", runs)
    assert not (tmp_path / "out").exists()


def test_several_runs_are_one_page(make_run: MakeRun, tmp_path: Path) -> None:
    out = tmp_path / "comparison"
    text = write_report(out, _runs(make_run), losses=[3.5, 2.0]).read_text(encoding="utf-8")
    page = Page(text)
    ids = page.attributes("id")
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in page.attributes("href") if link.startswith("#")} <= set(ids)
    assert "comparison" in page.text
    assert any(words.startswith("moe has the highest mean BLEU of 2 systems over 7") for words in page.text)
    assert "Not equal in everything." not in page.text
    assert {"dense", "moe_s1", "moe_s2", "mean of 2 seeds", "train.seed"} <= set(page.text)
    with (out / "sweep.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == ["dense", "moe", "moe_s1", "moe_s2", "bilingual"]
    # Losses are 3 + 5 / step; over two steps on either side the mean is still above 3.5 at step 10.
    assert [row["tokens_to_3.5"] for row in rows[2:4]] == ["11000", "11000"]
    assert {row["tokens_to_2.0"] for row in rows} == {""}
    written = {path.stem for path in out.glob("*.svg")}
    assert {"trendline", "trendline_over_reference", "bleu_vs_resource", "loss", "loss_time"} <= written
    assert (out / "comparison.csv").is_file()
    assert all((out / f"{name}.png").is_file() for name in written)


def test_a_phone_scrolls_tables_and_not_the_page_and_shows_the_warning(
    make_run: MakeRun, tmp_path: Path, browser: Any
) -> None:
    path = write_report(tmp_path / "out", _runs(make_run, config=config_of(0, max_tokens=5000)))
    page = browser.new_page(viewport={"width": 390, "height": 844})
    requests: list[str] = []
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text) if "Content Security" in message.text else None)
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    wide = "[...document.querySelectorAll('.scroll')].filter(box => box.scrollWidth > box.clientWidth).length"
    assert page.evaluate(wide) > 3
    hint = "getComputedStyle(document.querySelector('.plot'), '::before').content"
    assert "scrolls sideways" in page.evaluate(hint)
    assert "gradient" in page.evaluate("getComputedStyle(document.querySelector('.scroll')).backgroundImage")
    page.set_viewport_size({"width": 1280, "height": 800})
    assert page.evaluate(hint) == "none"
    assert requests == [path.as_uri()]  # nothing else is fetched
    assert not faults
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), { text: 'window.ran = 1' }))")
    assert page.evaluate("window.ran === undefined")
    warning = page.locator("aside.warning li").all_inner_texts()
    assert [text.split(",")[0] for text in warning] == ["budget"]
    assert "train.max_tokens=5000 (dense); train.max_tokens=None (moe_s1, moe_s2)." in warning[0]
    page.close()
