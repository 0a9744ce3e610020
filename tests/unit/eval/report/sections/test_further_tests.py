"""The section on further test sets: systems that lack pairs, directions that were not trained, and several runs."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from eval.number_format import decimal
from eval.records.faults import load_faults
from eval.records.results import load_results
from eval.records.run_record import load_run
from eval.records.scores import load_scores
from eval.report.markdown_summary import write_summary
from eval.report.page import write_report
from eval.report.sections.further_tests import further_tests_section
from eval.score.run import write_scores
from tests.unit.eval.conftest import MakeRun
from tests.unit.eval.report.test_page import Page

PAIRS = ["de-en", "en-fr", "de-fr"]
FRENCH = "Choisissez cette commande pour enregistrer le document sous un autre nom."
TRANSLATED = {"bilingual": ["de-en"], "pivot": ["de-fr"]}


def add_news(
    make_run: MakeRun, run: str, *, untrained: list[str], translated: dict[str, list[str]], **keys: Any
) -> Path:
    """Write and score the test set `news` as `make evaluate` does. A system has only some pairs."""
    keys |= {"translated": translated, "untrained": untrained, "train_pairs": {"de-en": 9, "en-fr": 5, "de-fr": 0}}
    directory = make_run(PAIRS, folder=f"{run}/tests/news", **keys)
    record = json.loads((directory / "run.json").read_text(encoding="utf-8"))
    record["systems"]["pivot"] = []
    (directory / "run.json").write_text(json.dumps(record), encoding="utf-8")
    texts = directory / "translations"
    for pair in translated.get("pivot", ()):
        (texts / "pivot").mkdir(exist_ok=True)
        (texts / "bilingual" / f"{pair}.jsonl").rename(texts / "pivot" / f"{pair}.jsonl")
    write_scores(directory, n_resamples=20)
    return directory


@pytest.fixture
def run(make_run: MakeRun) -> Path:
    directory = make_run(PAIRS[:2])
    write_scores(directory, n_resamples=20)
    return directory


def test_each_system_is_scored_where_it_has_translations(make_run: MakeRun, run: Path) -> None:
    news = add_news(make_run, "run", untrained=["de-fr"], translated=TRANSLATED)
    scores = {(row.pair, row.system, row.metric): row for row in load_scores(news / "scores.csv")}
    assert {(pair, system) for pair, system, _ in scores} == {
        ("de-en", "moe"),
        ("de-en", "bilingual"),
        ("en-fr", "moe"),
        ("de-fr", "moe"),
        ("de-fr", "pivot"),
    }
    text = write_report(run, load_results([("mine", run)])).read_text(encoding="utf-8")
    page = Page(text)
    section = text[text.index('<section id="further-tests">') : text.index('<section id="training">')]
    cells = [cell for cell in Page(section).text if cell]
    assert "#further-tests" in page.attributes("href")
    start = cells.index("de-fr")
    assert cells[start + 1] == "30"
    row, pivot = scores["de-fr", "moe", "bleu"], scores["de-fr", "pivot", "bleu"]
    intervals = [f"[{decimal(score.ci_low)}, {decimal(score.ci_high)}]" for score in (row, pivot)]
    assert cells[start + 2 : start + 5] == [decimal(row.score), "°", intervals[0]]
    assert cells[start + 5 : start + 9] == ["–", decimal(pivot.score), "°", intervals[1]]
    assert section.count("°") == 1 + 2 * len({metric for _, _, metric in scores})  # the note, and this pair's scores
    assert [cell for cell in cells if cell in ("multilingual", "bilingual", "in two steps")][:3] == [
        "multilingual",
        "bilingual",
        "in two steps",
    ]
    assert any(row.signature in cell for cell in cells)
    assert "BLEU, all pairs:" in cells


def test_means_are_below_the_pairs_and_untrained_directions_have_their_own(make_run: MakeRun, run: Path) -> None:
    news = add_news(make_run, "run", untrained=["de-fr"], translated=TRANSLATED)
    scores = {(row.pair, row.system): row.score for row in load_scores(news / "scores.csv") if row.metric == "bleu"}
    section = further_tests_section(load_results([("mine", run)]))
    assert section is not None
    untrained, everything = section["tests"][0].means["bleu"]
    assert (untrained.resource, untrained.num_pairs) == ("untrained", 1)
    assert untrained.scores == {("mine", system): scores["de-fr", system] for system in ("moe", "pivot")}
    mean = sum(scores[pair, "moe"] for pair in PAIRS) / 3
    assert (everything.resource, everything.num_pairs) == ("all", 3)
    assert everything.scores == {("mine", "moe"): pytest.approx(mean)}, "others lack pairs"
    text = write_report(run, load_results([("mine", run)])).read_text(encoding="utf-8")
    section_text = text[text.index('<section id="further-tests">') : text.index('<section id="training">')]
    cells = [cell for cell in Page(section_text).text if cell]
    assert cells[cells.index("mean, all (3)") :][1:4] == [decimal(mean), "–", "–"]


def test_several_runs_share_the_table_of_a_test_set(make_run: MakeRun, run: Path) -> None:
    add_news(make_run, "run", untrained=["de-fr"], translated=TRANSLATED)
    other = run.with_name("other")
    shutil.copytree(run, other)
    talks = {"bilingual": [], "pivot": []}
    add_news(make_run, "other/x", untrained=[], translated=talks).rename(other / "tests" / "talks")
    section = further_tests_section(load_results([("one", run), ("two", other)]))
    assert section is not None
    news, talks = section["tests"]
    assert [*news.columns.values()] == [
        *("one, multilingual", "one, bilingual", "one, in two steps"),
        *("two, multilingual", "two, bilingual", "two, in two steps"),
    ]
    assert (news.untrained, talks.untrained) == ({("one", "de-fr"), ("two", "de-fr")}, set())
    assert (talks.title, talks.lines) == ("talks", dict.fromkeys(PAIRS, 30))


def test_a_test_set_that_may_be_shown_has_a_page_of_its_sentences(make_run: MakeRun, run: Path) -> None:
    add_news(make_run, "run", untrained=["de-fr"], translated=TRANSLATED)
    hidden = add_news(make_run, "run/x", untrained=[], translated=TRANSLATED, sample_sentences=False)
    hidden.rename(run / "tests" / "talks")
    (run / "translations-older.html").touch()
    report = write_report(run, load_results([("mine", run)])).read_text(encoding="utf-8")
    assert {path.name for path in run.glob("translations*.html")} == {"translations.html", "translations-news.html"}
    assert '<a href="translations-news.html">' in report
    assert "translations-talks.html" not in report
    text = (run / "translations-news.html").read_text(encoding="utf-8")
    assert "<title>test-run: news: all translations</title>" in text
    data = json.loads(text.split('id="data">')[1].split("</script>")[0])
    model = "multilingual dense model"
    assert [(pair["pair"], pair["systems"], len(pair["rows"])) for pair in data["pairs"]] == [
        ("de-en", [model, "bilingual"], 30),
        ("en-fr", [model], 30),
        ("de-fr", [model, f"{model}, in two steps"], 30),
    ]


def test_a_test_set_of_untrained_directions_alone_has_one_step(make_run: MakeRun, run: Path) -> None:
    add_news(make_run, "run", untrained=PAIRS, translated=TRANSLATED)
    section = further_tests_section(load_results([("one", run)]))
    assert section is not None
    assert next(iter(section["tests"][0].columns.values())) == "in one step"


def test_an_ensemble_is_named_where_its_scores_are(make_run: MakeRun) -> None:
    """The headline, the scores, a further test set and summary.md have its members."""
    run = make_run(PAIRS[:2], config={"decode": {"beam": 4, "ensemble": ["second", "third"]}})
    write_scores(run, n_resamples=20)
    add_news(make_run, "run", untrained=["de-fr"], translated=TRANSLATED, config={"decode": {"ensemble": ["fourth"]}})
    text = write_report(run, load_results([("mine", run)])).read_text(encoding="utf-8")
    words = " ".join(" ".join(Page(text).text).split())
    alone = "It translates together with the models of second, third, while each bilingual model translates alone."
    assert alone in words
    assert alone in write_summary(run).read_text(encoding="utf-8")
    scores = text[text.index('<section id="scores">') : text.index('<section id="further-tests">')]
    assert "Its parameters, FLOPs and times are those of its own model" in " ".join(scores.split())
    further = text[text.index('<section id="further-tests">') : text.index('<section id="training">')]
    assert "translates together with the models of fourth;" in further
    assert "of second" not in further


def test_other_settings_of_decoding_are_named(make_run: MakeRun) -> None:
    run = make_run(
        PAIRS[:2], config={"decode": {"beam": 4, "precision": "fp32", "choose": "mbr", "batch_sentences": 64}}
    )
    write_scores(run, n_resamples=20)
    used = {"beam": 4, "precision": "int8"}
    add_news(make_run, "run", untrained=[], translated=TRANSLATED, config={"decode": used})
    text = write_report(run, load_results([("mine", run)])).read_text(encoding="utf-8")
    assert "translates it with decode.precision=int8, the default of decode.choose, other than its own" in text
    add_news(make_run, "run", untrained=[], translated=TRANSLATED, config=load_run(run).config)
    assert "translates it with" not in write_report(run, load_results([("mine", run)])).read_text(encoding="utf-8")


def test_two_steps_of_an_older_model_are_left_out(make_run: MakeRun, run: Path) -> None:
    news = add_news(make_run, "run", untrained=["de-fr"], translated=TRANSLATED)
    record = json.loads((news / "run.json").read_text(encoding="utf-8"))
    older = [{"artifacts": {"model": "train/0123456789abcdef"}}]
    (news / "run.json").write_text(json.dumps(record | {"systems": {"pivot": older}}), encoding="utf-8")
    section = further_tests_section(load_results([("one", run)]))
    assert section is not None
    assert (section["tests"], section["outdated"]) == ([], ["tests/news"])


def test_a_model_that_translates_alone_has_no_such_note(run: Path) -> None:
    text = write_report(run, load_results([("mine", run)])).read_text(encoding="utf-8")
    assert "translates together" not in text + write_summary(run).read_text(encoding="utf-8")


def test_a_run_without_further_test_sets_has_no_section(run: Path) -> None:
    (run / "tests" / "unfinished").mkdir(parents=True)  # `make evaluate` was interrupted there
    assert further_tests_section(load_results([("one", run)])) is None
    assert "further-tests" not in write_report(run, load_results([("mine", run)])).read_text(encoding="utf-8")


def test_scores_of_other_sentences_have_a_table_of_their_own(make_run: MakeRun, run: Path) -> None:
    """Two runs with another test set of one name, and one that has two results: its own, and one of make evaluate."""
    news = add_news(make_run, "run", untrained=[], translated=TRANSLATED)
    shutil.copytree(news, run / "test_sets" / "news")
    other = run.with_name("other")
    shutil.copytree(run, other)
    shutil.rmtree(other / "test_sets")
    path = other / "tests" / "news" / "translations" / "moe" / "en-fr.jsonl"
    first, *lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    section = further_tests_section(load_results([("one", run), ("two", other)]))
    assert section is not None
    assert [test.title for test in section["tests"]] == ["news (one/test_sets, two/tests)", "news (one/tests)"]
    path.write_text("".join([first.replace("source 0", "source x"), *lines]), encoding="utf-8")
    section = further_tests_section(load_results([("one", run), ("two", other)]))
    assert section is not None
    titles = ["news (one/test_sets)", "news (one/tests)", "news (two/tests)"]
    assert [test.title for test in section["tests"]] == titles


def test_scores_of_an_older_model_are_left_out_and_named(make_run: MakeRun, run: Path) -> None:
    add_news(make_run, "run", untrained=[], translated=TRANSLATED)
    record = json.loads((run / "run.json").read_text(encoding="utf-8"))
    record["systems"]["moe"][0]["artifacts"] = {"model": "train/0123456789abcdef"}
    (run / "run.json").write_text(json.dumps(record), encoding="utf-8")
    section = further_tests_section(load_results([("one", run)]))
    assert section is not None
    assert (section["tests"], section["outdated"]) == ([], ["tests/news"])
    text = write_report(run, load_results([("mine", run)])).read_text(encoding="utf-8")
    (note,) = [line for line in text.splitlines() if "another model" in line]
    assert "has another model by now: tests/news. Repeat" in note


def add_faulty_news(make_run: MakeRun, run: str) -> Path:
    """Add the test set `news`, whose pair de-fr is translated into English in one step.

    The references of de-fr are French, and six of its translations in two steps are empty. Those of en-fr are English,
    so its languages are not judged.
    """
    news = add_news(make_run, run, untrained=["de-fr"], translated=TRANSLATED)
    for system in ("moe", "pivot"):
        path = news / "translations" / system / "de-fr.jsonl"
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for place, line in enumerate(lines):
            line["reference"] = f"{FRENCH} {place}"
            if system == "pivot":
                line["hypothesis"] = "" if place < 6 else line["reference"]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    write_scores(news, n_resamples=20)
    return news


def test_faults_of_one_step_and_of_two_have_the_floor_below(make_run: MakeRun, run: Path) -> None:
    news = add_faulty_news(make_run, "run")
    section = further_tests_section(load_results([("mine", run)]))
    assert section is not None
    faults = section["tests"][0].faults
    direct, pivot = (faults.pairs["de-fr"]["mine", system] for system in ("moe", "pivot"))
    (row,) = [row for row in load_faults(news) if (row.pair, row.system) == ("de-fr", "moe")]
    assert direct.shares["wrong_language"] == row.wrong_language / row.judged > 0.5
    assert (pivot.shares["wrong_language"], pivot.shares["faulty"]) == (0, 6 / 30)
    assert direct.floors["wrong_language"] == direct.floors["faulty"] == 0
    assert "faulty" in pivot.notable
    text = write_report(run, load_results([("mine", run)])).read_text(encoding="utf-8")
    part = text[text.index('<section id="further-tests">') : text.index('<section id="training">')]
    assert "wrong language<br>in two steps" in part
    assert "any fault<br>multilingual" in part
    assert '<td class="sure">20.0 %<span class="share">0.0 %</span></td>' in part
    assert re.search("Languages are not judged for en-fr: [0-9.]+ % of its references are taken for", part)
    (line,) = [line for line in part.splitlines() if line.startswith('<tr><th scope="row">en-fr</th><td>–<')]
    assert "<td>–" in line


def test_a_test_set_without_counts_is_named(make_run: MakeRun, run: Path) -> None:
    (add_news(make_run, "run", untrained=[], translated=TRANSLATED) / "faults.csv").unlink()
    section = further_tests_section(load_results([("mine", run)]))
    assert section is not None
    assert section["tests"][0].faults.uncounted == ["mine"]
    text = write_report(run, load_results([("mine", run)])).read_text(encoding="utf-8")
    assert re.search("Faults are not counted: [^.<]+[.] An older version scored the test set", text)
    assert "note-further-faults" not in text
