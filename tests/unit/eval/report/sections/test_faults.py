"""The section on faults, of runs that are made and scored."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from eval import number_format
from eval.records.faults import LANGUAGE, FaultyLine, load_faults
from eval.records.results import group_seeds, load_results
from eval.report.plots.faults import FaultPoints
from eval.report.sections.fault_tables import ANY, _far_above
from eval.report.sections.faults import fault_points, faults_section, worst
from eval.report.templating import environment
from eval.score.run import write_scores
from tests.unit.eval.conftest import MakeRun, config_of
from tests.unit.eval.report.sections.score_pages import Rows, section_of

FRENCH = "Choisissez cette commande pour enregistrer le document sous un autre nom."
Change = Callable[[dict[str, Any]], dict[str, Any]]


def run_with(
    make_run: MakeRun,
    folder: str,
    changes: Mapping[tuple[str, int], dict[str, Any]],
    *,
    pairs: Sequence[str] = ("de-en", "fr-en"),
    recorded: bool = False,
    **keys: Any,
) -> Path:
    """Make and score a run.

    changes: new values of the model's translations, by pair and index.
    recorded: all translations record whether the limit of length ended them.
    """
    run_dir = make_run(pairs, {"moe": 0.2, "bilingual": 0.2}, folder=folder, **keys)
    for path in run_dir.glob("translations/*/*.jsonl"):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for index, line in enumerate(lines):
            line |= {"at_limit": False} if recorded else {}
            line |= changes.get((path.stem, index), {}) if path.parent.name == "moe" else {}
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    write_scores(run_dir, metrics=["bleu"], n_resamples=10)
    return run_dir


def empty(pair: str, count: int) -> dict[tuple[str, int], dict[str, Any]]:
    return {(pair, index): {"hypothesis": ""} for index in range(count)}


def rendered(*runs: Path) -> tuple[Mapping[str, Any], str]:
    section = faults_section(group_seeds(load_results([(run.name, run) for run in runs])))
    assert section is not None
    template = environment().get_template("faults_section.html.j2")
    return section, " ".join(template.render(faults=section, figures={}, n=number_format).split())


def test_shares_are_of_each_system_with_the_floor_below(make_run: MakeRun) -> None:
    changes = {("de-en", 0): {"hypothesis": FRENCH}, ("de-en", 1): {"hypothesis": ""}}
    run = run_with(make_run, "a", changes | empty("fr-en", 6))
    judged = next(row.judged for row in load_faults(run) if (row.pair, row.system) == ("de-en", "moe"))
    section, page = rendered(run)
    own, bilingual = section["compared"].all_tables
    assert 20 < judged < 30
    assert own.pairs["de-en"].shares["faulty"] == 2 / 30
    assert own.pairs["de-en"].shares["wrong_language"] == 1 / judged
    assert own.pairs["fr-en"].shares["empty"] == 6 / 30
    assert own.mean["faulty"] == own.mean_faulty(["de-en", "fr-en"]) == pytest.approx(4 / 30)
    assert own.floor_mean["faulty"] == 0
    assert own.pairs["de-en"].notable == set()  # a line of 30 is a point above, and may be chance
    assert own.pairs["fr-en"].notable == {"faulty", "empty"}
    assert bilingual.label == "bilingual"
    assert bilingual.mean["faulty"] == 0
    assert page.count('<td class="sure">20.0 %<span class="share">0.0 %</span></td>') == page.count('"sure"') == 2
    assert "<summary>bilingual</summary>" in page


def test_a_point_is_far_above_though_floats_are_short_of_it() -> None:
    assert 0.03 - 0.02 < 0.01
    assert _far_above(0.03, 0.02)
    assert not _far_above(0.029, 0.02)
    assert not _far_above(None, 0.02)


def test_the_seeds_of_a_system_are_counted_together(make_run: MakeRun) -> None:
    changes = empty("de-en", 8), empty("de-en", 1) | empty("fr-en", 6), empty("fr-en", 6)
    runs = [
        run_with(make_run, f"s{seed}", of_run, config=config_of(8, seed))
        for seed, of_run in enumerate(changes, start=1)
    ]
    section, _ = rendered(*runs[:2])
    table = section["compared"].tables["s"]
    assert table.pairs["de-en"].shares["empty"] == table.pairs["de-en"].shares["faulty"] == 9 / 60
    assert table.pairs["de-en"].notable == set()  # the second seed alone is not surely above
    section, _ = rendered(*runs[1:])
    assert section["compared"].tables["s"].pairs["fr-en"].notable == {"faulty", "empty"}


def test_systems_whose_translations_do_not_record_the_limit_compare_without_it(
    make_run: MakeRun, tmp_path: Path
) -> None:
    at_limit: dict[tuple[str, int], dict[str, Any]] = {("de-en", n): {"at_limit": True} for n in range(4)}
    at_limit["de-en", 0] |= {"hypothesis": ""}
    new = run_with(make_run, "new", at_limit, recorded=True)
    old = run_with(make_run, "old", empty("de-en", 1))
    section, page = rendered(new)
    assert section["compared"].tables["new"].faulty("de-en") == 4 / 30
    assert "older version" not in page
    assert "“cut off” does not count" not in Rows(section_of(tmp_path, [("new", new)])).text
    section, page = rendered(new, old)
    for label in ("new", "old"):
        assert section["compared"].tables[label].faulty("de-en") == 1 / 30
    assert section["compared"].tables["new"].pairs["de-en"].shares["truncated"] == 4 / 30
    assert section["compared"].tables["old"].pairs["de-en"].shares["truncated"] is None
    assert section["compared"].unrecorded == ["old"]
    assert "Some translations of old were made by an older version" in page
    scores = Rows(section_of(tmp_path, [("new", new), ("old", old)]))
    assert "“cut off” does not count" in scores.text
    assert [row[-1] for row in scores.rows if row[0] == "de-en" and "%" in row[-1]] == ["3.3 %", "3.3 %"]


def test_a_run_of_an_older_version_is_named_and_has_no_column(make_run: MakeRun, tmp_path: Path) -> None:
    run, counted = (run_with(make_run, name, {("de-en", 1): {"hypothesis": ""}}) for name in ("a", "b"))
    rows = Rows(section_of(tmp_path, [("a", run)])).rows
    assert rows[0][-1] == "Faults"
    assert [row[-1] for row in rows[1:4]] == ["3.3 %", "0.0 %", "1.7 %"]
    (run / "faults.csv").unlink()
    systems = group_seeds(load_results([("a", run)]))
    assert faults_section(systems) is None
    assert "Faults" not in Rows(section_of(tmp_path, [("a", run)])).rows[0]
    section, page = rendered(run, counted)
    assert list(section["compared"].tables) == ["b"]
    assert "Not counted: a. An older version scored these runs" in page
    page = Rows(section_of(tmp_path, [("a", run), ("b", counted)])).text
    assert page.count('<a href="#faults">Faults</a>') == 1


def test_the_worst_translations_are_shown_and_escaped(make_run: MakeRun) -> None:
    hostile = "<script>alert('x')</script>"
    loop = f"{hostile} press enter to open " * 40
    changes: dict[tuple[str, int], dict[str, Any]] = {
        ("de-en", 3): {"hypothesis": FRENCH},
        ("fr-en", 5): {"hypothesis": loop},
        ("fr-en", 6): {"at_limit": True},
    }
    section, page = rendered(run_with(make_run, "a", changes))
    ((_, groups),) = section["examples"]
    assert [title for title, _ in groups] == ["wrong language", "repeating", "cut off"]
    assert "line 4, taken for <code>fr</code>" in page
    assert FRENCH in page
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert f"… ({len(loop):,} characters)" in page
    assert loop not in page


def test_hidden_sentences_are_not_examples(make_run: MakeRun) -> None:
    run = run_with(make_run, "a", {("de-en", 3): {"hypothesis": FRENCH}}, sample_sentences=False)
    section, page = rendered(run)
    assert section["examples"] is None
    assert FRENCH not in page
    assert "not shown, because the licence of a test set or <code>report.show=false</code> hides" in page


def test_pairs_without_a_judged_language_are_named(make_run: MakeRun) -> None:
    run_dir = make_run(["en-tlh", "en-de"])
    write_scores(run_dir, metrics=["bleu"], n_resamples=10)
    section, page = rendered(run_dir)
    assert section["compared"].all_tables[0].pairs["en-tlh"].shares["wrong_language"] is None
    assert "Languages are not judged for en-tlh: the model does not know tlh." in page
    assert re.search(r"Languages are not judged for en-de: [0-9.]+ % of its references are taken for another", page)


def test_worst_lines_are_of_different_pairs_first_and_not_those_of_the_references() -> None:
    def line(pair: str, number: int, degree: int, system: str = "moe", fault: str = "copied") -> FaultyLine:
        return FaultyLine(pair=pair, system=system, line=number, fault=fault, degree=degree, language="")

    lines = [line("a-b", n, degree=10 + n) for n in range(1, 6)] + [line("c-d", 1, degree=3), line("c-d", 2, degree=2)]
    lines += [line("a-b", 5, 15, system="reference"), line("e-f", 1, 99, system="bilingual")]
    chosen = worst([*lines, line("e-f", 1, degree=1, fault="empty")])
    assert [(row.pair, row.line) for row in chosen["copied"]] == [("a-b", 4), ("c-d", 1), ("a-b", 3)]
    assert list(chosen) == ["empty", "copied"]


def points_of(*runs: Path, fault: str = ANY) -> FaultPoints | None:
    results = load_results([(run.name, run) for run in runs])
    section = faults_section(group_seeds(results))
    assert section is not None
    return fault_points(section["compared"], results, fault)


def test_there_is_a_figure_only_where_a_system_surely_has_more_faults_than_the_references(make_run: MakeRun) -> None:
    points = points_of(run_with(make_run, "a", empty("fr-en", 6)))
    assert points is not None
    assert [(point.label, point.train_pairs, point.share) for point in points.systems["a"]] == [
        ("de", 6000, 0.0),
        ("fr", 3000, 6 / 30),
    ]
    assert [(point.label, point.share) for point in points.baseline] == [("de", 0.0), ("fr", 0.0)]
    assert [(point.label, point.share) for point in points.floors] == [("de", 0.0), ("fr", 0.0)]
    assert points_of(run_with(make_run, "b", empty("fr-en", 5))) is None
    assert points_of(run_with(make_run, "c", empty("de-en", 6), pairs=["de-en"])) is None


def test_wrong_languages_have_a_figure_of_their_own_without_pairs_that_are_not_judged(make_run: MakeRun) -> None:
    french = {("de-en", index): {"hypothesis": FRENCH} for index in range(12)}
    points = points_of(run_with(make_run, "a", french, pairs=["de-en", "fr-en", "en-tlh"]), fault=LANGUAGE)
    assert points is not None
    assert points.what == "translations in a wrong language"
    assert [(point.label, point.share > 0.3) for point in points.systems["a"]] == [("de-en", True), ("fr-en", False)]
    assert {point.label for point in (*points.baseline, *points.floors)} == {"de-en", "fr-en"}
    assert points_of(run_with(make_run, "b", empty("fr-en", 6)), fault=LANGUAGE) is None


def test_the_figure_has_all_systems_and_the_references_of_all_pairs(make_run: MakeRun) -> None:
    first = run_with(make_run, "a", empty("de-en", 6))
    second = run_with(make_run, "b", empty("es-en", 3), pairs=["de-en", "es-en"])
    points = points_of(first, second)
    assert points is not None
    shares = {label: [point.share for point in of_system] for label, of_system in points.systems.items()}
    assert shares == {"a": [6 / 30, 0.0], "b": [0.0, 3 / 30]}
    assert {point.label: point.share for point in points.baseline} == {"de": 0.0, "fr": 0.0}
    assert {point.label: point.share for point in points.floors} == {"de": 0.0, "fr": 0.0, "es": 0.0}
