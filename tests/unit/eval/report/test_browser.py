import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eval.records.results import load_results
from eval.records.run_record import Translation
from eval.report.browser import MOST_TRANSLATIONS, write_browser
from eval.report.sections.sentence_choice import sentence_scores
from eval.report.sections.sentences import ShownSystems, shown_systems
from eval.score.run import write_scores
from tests.unit.eval.conftest import MakeRun, config_of

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
TEXTS = [  # source, reference, hypotheses of moe and bilingual
    ("Datei öffnen", "Open the file.", "Open the file.", "Open a new file."),
    ("Fenster", "Close this window now", "Close window now", "Datei Fenster"),
    (HOSTILE, "Print the page", "", HOSTILE),
]


@pytest.fixture
def run_dir(make_run: MakeRun) -> Path:
    """A run of two pairs: three lines of Arabic that a test can name, and 60 of German."""
    run_dir = make_run(["de-en", "ar-en"], num_lines=60)
    for system, place in (("moe", 2), ("bilingual", 3)):
        lines = [{"source": row[0], "reference": row[1], "hypothesis": row[place]} for row in TEXTS]
        path = run_dir / "translations" / system / "ar-en.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    write_scores(run_dir, metrics=["bleu", "chrf++"], n_resamples=10)
    return run_dir


@pytest.fixture
def page(run_dir: Path, browser: Any) -> Iterator[Any]:
    """The page in a browser that notes every request and every message of the console."""
    write_browser(run_dir, load_results([("", run_dir)]), "a < b")
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    notes: list[str] = []
    page.on("console", lambda message: notes.append(message.text))
    page.on("pageerror", lambda error: notes.append(str(error)))
    page.on("request", lambda request: notes.append(request.url))
    page.goto((run_dir / "translations.html").as_uri())
    yield page
    assert notes == [(run_dir / "translations.html").as_uri()]
    page.close()


def _heads(page: Any) -> list[str]:
    heads: list[str] = page.eval_on_selector_all("article h2", "all => all.map(each => each.textContent)")
    return heads


def _count(page: Any) -> str:
    text: str = page.text_content("#count")
    return text


def test_all_sentences_are_there_a_page_at_a_time(page: Any) -> None:
    assert page.text_content("h1") == "a < b: all translations"
    assert _count(page) == "63 of 63 sentences, 1 to 50 shown"
    assert _heads(page)[::49] == ["de-en, line 1", "de-en, line 50"]
    page.click("#next")
    assert _count(page) == "63 of 63 sentences, 51 to 63 shown"
    assert _heads(page)[-1] == "ar-en, line 3"
    assert page.is_disabled("#next")
    page.click("#previous")
    assert _count(page).endswith("1 to 50 shown")


def test_sentences_are_searched_and_filtered_by_pair_and_fault(page: Any) -> None:
    page.fill("#search", " DATEI ÖFF")
    assert _heads(page) == ["ar-en, line 1"]
    page.fill("#search", "found nowhere")
    assert _count(page) == "None of 63 sentences fits."
    page.fill("#search", "")
    page.select_option("#pair", "ar-en")
    assert _count(page) == "3 of 63 sentences, 1 to 3 shown"
    page.select_option("#fault", "empty")
    assert _heads(page) == ["ar-en, line 3"]
    assert page.text_content("article .fault") == "empty"
    assert page.eval_on_selector_all("dd", "all => all[2].textContent") == "(empty)"
    page.select_option("#fault", "copied")
    assert _heads(page) == ["ar-en, line 3"]
    page.select_option("#fault", "truncated")
    assert _heads(page) == []


def test_sentences_are_ordered_by_the_difference_of_two_systems(page: Any, run_dir: Path) -> None:
    page.select_option("#pair", "ar-en")
    columns = [[row[place] for row in TEXTS] for place in (2, 3)]
    moe, bilingual = sentence_scores(columns, [row[1] for row in TEXTS], "en", "chrf++")
    (name,) = {label for label in page.evaluate("systems") if label != "bilingual"}
    for value, keys in (
        (f"{name}>bilingual", moe - bilingual),
        (f"bilingual>{name}", bilingual - moe),
        (f"-{name}", -moe),
        ("+bilingual", bilingual),
    ):
        page.select_option("#order", value)
        expected = sorted(range(3), key=lambda place, keys=keys: -keys[place])  # type: ignore[misc]
        assert _heads(page) == [f"ar-en, line {place + 1}" for place in expected]
    printed_scores = page.eval_on_selector_all("article:first-child dt b", "all => all.map(each => each.textContent)")
    best = int(bilingual.argmax())
    assert printed_scores == [f"{moe[best]:.0f}", f"{bilingual[best]:.0f}"]


def test_sentences_without_a_score_are_the_last(page: Any) -> None:
    page.select_option("#pair", "ar-en")
    page.evaluate("sentences.find(each => each.pair.pair === 'ar-en' && each.line === 1).systems.delete('bilingual')")
    (name,) = {label for label in page.evaluate("systems") if label != "bilingual"}
    for order in (f"{name}>bilingual", f"bilingual>{name}", "+bilingual", "-bilingual"):
        page.select_option("#order", order)
        assert len(_heads(page)) == 3
        assert _heads(page)[-1] == "ar-en, line 1"


def test_words_that_the_reference_lacks_are_underlined(page: Any) -> None:
    page.select_option("#pair", "ar-en")
    marks = page.eval_on_selector_all(
        "article", "all => all.map(one => [...one.querySelectorAll('u')].map(u => u.textContent))"
    )
    assert marks[:2] == [["a new"], ["Datei Fenster"]]
    han = page.evaluate("marked('打开新文件', '打开文件').map(part => part.outerHTML ?? part).join('')")
    assert han == "打开<u>新</u>文件"
    thai = page.evaluate("marked('เปิดไฟล์ที่', 'เปิดไฟล์').map(part => part.outerHTML ?? part).join('')")
    assert thai == "เปิดไฟล์<u>ที่</u>"


def test_texts_of_strangers_are_text_and_languages_have_their_direction(page: Any) -> None:
    page.fill("#search", "onerror")
    assert page.eval_on_selector_all("article dd", "all => all.map(each => each.textContent)") == [
        HOSTILE,
        "Print the page",
        "(empty)",
        HOSTILE,
    ]
    assert page.query_selector("article img") is None
    sides = page.eval_on_selector_all("article dd", "all => all.map(each => each.lang + ' ' + each.dir)")
    assert sides == ["ar rtl", "en ltr", "en ltr", "en ltr"]


def test_keys_search_step_and_turn(page: Any) -> None:
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.querySelector('h2').textContent") == "de-en, line 2"
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.querySelector('h2').textContent") == "de-en, line 1"
    page.keyboard.press("n")
    assert _count(page).endswith("51 to 63 shown")
    page.keyboard.press("p")
    page.keyboard.press("/")
    page.keyboard.type("jn/p")
    assert page.input_value("#search") == "jn/p"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement === document.body")


def test_the_address_has_the_choice(page: Any, run_dir: Path) -> None:
    page.select_option("#pair", "ar-en")
    page.select_option("#fault", "empty")
    page.wait_for_url("**/translations.html#pair=ar-en&fault=empty")
    page.evaluate("location.hash = '#pair=ar-en'")
    page.wait_for_function("document.querySelectorAll('article').length === 3")
    assert page.input_value("#fault") == ""
    page.evaluate("location.hash = '#pair=xx-yy'")  # of another report
    page.wait_for_function("document.querySelectorAll('article').length === 50")


def test_a_phone_shows_it_without_scrolling_sideways(page: Any) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.fill("#search", "onerror")
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_systems_that_are_not_on_the_page_are_named(
    make_run: MakeRun, browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two systems and baselines of 100 sentences are 300 translations, which leaves out the third system."""
    runs = []
    for name, experts in (("dense", 0), ("few", 4), ("many", 8)):
        directory = make_run(
            ["de-en", "fr-en"], {"moe": 0.1 * experts / 8, "bilingual": 0.4}, 50, name, config=config_of(experts)
        )
        path = directory / "translations" / "moe" / "fr-en.jsonl"
        if name == "few":
            path.write_text(path.read_text(encoding="utf-8").replace("source 1", "other 1"), encoding="utf-8")
        write_scores(directory, metrics=["bleu"], n_resamples=10)
        runs.append((name, directory))
    monkeypatch.setattr("eval.report.browser.MOST_TRANSLATIONS", 300)
    write_browser(tmp_path, load_results(runs), "three")
    page = browser.new_page()
    page.goto((tmp_path / "translations.html").as_uri())
    note = " ".join(page.text_content("header .note").split())
    assert "at most 300 translations, so these systems are not on it: many." in note
    assert "The bilingual baselines are those of dense." in note
    assert page.evaluate("systems") == ["dense", "few", "bilingual"]
    assert page.text_content("#missing") == "Not shown, because the test set is another one: few on fr-en."
    page.select_option("#pair", "de-en")
    assert page.text_content("#missing") == ""
    page.close()


def test_two_systems_and_baselines_of_38_pairs_are_on_the_page(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [f"{first}{second}-en" for first in "abcdef" for second in "tuvwxyz"][:38]
    runs = [
        (name, make_run(pairs, num_lines=1, folder=name, config=config_of(len(name)))) for name in ("a", "bc", "def")
    ]
    for _, directory in runs:
        write_scores(directory, metrics=["bleu"], n_resamples=2)
    systems = shown_systems(load_results(runs))
    assert systems is not None
    lines = [Translation(source="a", hypothesis="b", reference="c", score=None, at_limit=None)] * 700
    monkeypatch.setattr(ShownSystems, "translations", lambda self, pair: ({"a": lines}, []))
    limited_systems = systems.limited(MOST_TRANSLATIONS)
    assert [run.label for run in limited_systems.seeds] == ["a", "bc"]
    assert limited_systems.baselines is not None


def test_baselines_of_a_run_that_is_not_on_the_page_are(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So are the pairs that one of the shown systems or its baselines translates, and no others."""
    runs = []
    for name, pairs, damage in (
        ("moe", ["de-en"], {"moe": 0.1}),
        ("dense", ["de-en", "fr-en"], {"moe": 0.2, "bilingual": 0.3}),
        ("other", ["es-en"], {"moe": 0.2}),
    ):
        directory = make_run(pairs, damage, 20, name, config=config_of(8 * (name == "moe"), 1, max_tokens=len(name)))
        write_scores(directory, metrics=["bleu"], n_resamples=10)
        runs.append((name, directory))
    monkeypatch.setattr("eval.report.browser.MOST_TRANSLATIONS", 1)
    write_browser(tmp_path, load_results(runs), "page")
    text = (tmp_path / "translations.html").read_text(encoding="utf-8")
    data = json.loads(text.split('id="data">')[1].split("</script>")[0])
    assert [(pair["pair"], pair["systems"]) for pair in data["pairs"]] == [
        ("de-en", ["moe", "bilingual"]),
        ("fr-en", ["bilingual"]),
    ]
    assert "not on it: dense, other." in text


def test_the_page_goes_where_sentences_may_not_be_shown(make_run: MakeRun) -> None:
    run_dir = make_run(["de-en"])
    write_scores(run_dir, metrics=["bleu"], n_resamples=10)
    write_browser(run_dir, load_results([("", run_dir)]), "run")
    page = run_dir / "translations.html"
    assert "alert" not in page.read_text(encoding="utf-8")
    assert page.exists()
    record = json.loads((run_dir / "run.json").read_text(encoding="utf-8"))
    (run_dir / "run.json").write_text(json.dumps(record | {"sample_sentences": False}), encoding="utf-8")
    write_browser(run_dir, load_results([("", run_dir)]), "run")
    assert not page.exists()
