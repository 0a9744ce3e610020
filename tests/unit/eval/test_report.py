import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from eval.macro import macro_means
from eval.report import write_report
from eval.scores import load_scores
from eval.scoring import write_scores

MakeRun = Callable[..., Path]
VOID = {"meta", "br", "path", "use", "link", "img", "hr", "rect"}
ELEVEN = ["de-en", "fr-en", "es-en", "ru-en", "zh-Hans-en", "ja-en", "tr-en", "ko-en", "el-en", "ar-en", "eu-en"]


class Page(HTMLParser):
    """Collects what the tests ask of a page, and checks that its elements are closed in order."""

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
    text = write_report(run_dir).read_text(encoding="utf-8")
    return text, Page(text)


@pytest.mark.parametrize("pairs", [["de-en"], ELEVEN])
def test_report_is_self_contained_and_holds_every_score(make_run: MakeRun, pairs: list[str]) -> None:
    run_dir = make_run(pairs)
    text, page = _report(run_dir)
    links = page.attributes("src") + page.attributes("href") + page.attributes("xlink:href")
    ids = page.attributes("id")
    assert len(ids) == len(set(ids))
    assert links
    assert all(link.startswith("#") and link[1:] in ids for link in links)
    assert "url(http" not in text
    assert "@import" not in text
    cells = set(page.text)
    for row in load_scores(run_dir / "scores.csv"):
        assert f"{row.score:.1f}" in cells
        assert row.signature in cells
    assert set(pairs) <= cells
    assert [tag for tag, _ in page.tags].count("figure") == 3
    assert all(attrs.get("aria-label") for tag, attrs in page.tags if tag == "svg")
    for name in ("trendline.png", "trendline.svg", "bleu_vs_resource.png", "bleu_vs_resource.svg", "loss.png"):
        assert (run_dir / name).stat().st_size > 0


def test_means_are_shown_by_resource_and_every_metric_has_its_column(make_run: MakeRun) -> None:
    run_dir = make_run(ELEVEN, num_lines=6)
    write_scores(run_dir, metrics=["bleu", "chrf", "ter"], n_resamples=10)
    page = Page(write_report(run_dir).read_text(encoding="utf-8"))
    labels = [text for text in page.text if text.startswith("mean, ")]
    assert labels == ["mean, high (4)", "mean, medium (4)", "mean, low (3)", "mean, all (11)"]
    assert {"1,500–6,000", "chrF", "TER"} <= set(page.text)
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


def test_sentences_are_shown_only_where_the_licence_allows(make_run: MakeRun) -> None:
    _, page = _report(make_run(["de-en"], sample_sentences=False))
    assert "Translations" not in page.text
    assert not any(text.startswith("source ") for text in page.text)


def test_a_bare_record_without_baselines_still_reports(make_run: MakeRun) -> None:
    run_dir = make_run(["de-en", "fr-en"], damage={"moe": 0.3}, funnel={}, config={}, corpus={}, commit=None)
    _, page = _report(run_dir)
    assert any("without bilingual baselines" in text for text in page.text)
    assert not (run_dir / "trendline.png").exists()


def test_funnel_config_and_corpus_are_shown(make_run: MakeRun) -> None:
    counts = {"train": {"read": 6060, "removed": {"too long": 41}, "kept": 6019}, "dev": {"read": 7, "kept": 7}}
    corpus = {"title": "LibreOffice help", "licence": "MPL-2.0"}
    _, page = _report(make_run(["de-en"], funnel={"de-en": counts}, corpus=corpus))
    assert {"6,060", "41", "too long", "6,019", "MPL-2.0"} <= set(page.text)
    assert "train.steps=900" in page.text


@pytest.mark.parametrize("name", ["run.json", "scores.csv", "significance.csv", "metrics.jsonl"])
def test_a_missing_file_is_named(make_run: MakeRun, name: str) -> None:
    run_dir = make_run(["de-en"])
    write_scores(run_dir, n_resamples=10)
    (run_dir / name).unlink()
    with pytest.raises(ValueError, match=f"{name} does not exist"):
        write_report(run_dir)
