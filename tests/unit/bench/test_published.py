"""Tables in README.md and docs are those of bench/results, and none is older than a minor version."""

import re

import pytest

from bench.output import RESULTS, ROOT, origin, project_version, results_file
from bench.published import cells
from bench.published.cells import measurements
from bench.published.documents import BLOCK, DOCUMENTS, TABLES, outdated, rendered


@pytest.mark.parametrize("name", DOCUMENTS)
def test_tables_are_made_from_the_results(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert BLOCK.search(text), "a document without a table need not be listed"
    assert rendered(text) == text, "run `python -m bench.published`"


def test_every_table_is_published_and_no_result_is_outdated():
    names = {match["name"] for name in DOCUMENTS for match in BLOCK.finditer((ROOT / name).read_text(encoding="utf-8"))}
    assert names == set(TABLES)
    assert list(outdated(RESULTS)) == []


def test_results_of_an_older_minor_version_are_refused(tmp_path):
    major, minor, _ = project_version().split(".")
    for name, version, commit in (
        ("new", f"{major}.{minor}.0", "abc"),
        ("old", f"{major}.{int(minor) - 1}.9", "abc"),
        ("changed", f"{major}.{minor}.0", "abc+"),
    ):
        (tmp_path / f"{name}.csv").write_text(f"ms,version,commit,date\n1,{version},{commit},2026-11-22\n")
    (tmp_path / "nameless.csv").write_text("ms\n1\n")
    problems = list(outdated(tmp_path))
    assert [problem.split(".csv")[0] for problem in problems] == ["changed", "nameless", "old"]
    assert "not committed" in problems[0]


def test_a_figure_that_was_edited_by_hand_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(cells, "RESULTS", tmp_path)
    lines = ["device,kind,way,cpu_ms,cpu_ratio,cpu_ratio_least,cpu_ratio_most,wall_ratio"]
    lines += ["cpu,layer,this project,50,1,1,1,1", 'cpu,layer,"another, slower",75.04,1.5,1.25,1.75,1.4']
    (tmp_path / "layout-cpu.csv").write_text("\n".join(lines) + "\n")
    edited = "before\n<!-- bench: layouts -->\n| layer, another, slower | 60.0 |\n<!-- end -->\nafter\n"
    restored = rendered(edited)
    assert restored.startswith("before\n<!-- bench: layouts -->\n| way | processor time, ms |")
    assert (
        "| layer, another, slower | 75.0 | 1.50 [1.25, 1.75] | 1.40 | layout-cpu:3 |\n<!-- end -->\nafter\n" in restored
    )
    assert rendered(restored) == restored
    assert [row["way"] for _, row in measurements("layout", kind="layer")] == ["this project", "another, slower"]


def test_ways_to_choose_have_means_over_runs_and_the_lines_of_their_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(cells, "RESULTS", tmp_path)
    lines = ["run,way,sentences,seconds,bleu,chrf++,ter"]
    lines += ["s1,beam 1,10,1,10,30,80", "s1,beam 1,30,1,20,30,80", "s2,beam 1,20,1,30,30,83", "s1,beam 4,10,1,1,1,1"]
    (tmp_path / "choice-cpu.csv").write_text("\n".join(lines) + "\n")
    table = TABLES["choosing"]()
    assert "| beam 1 | 20.0 | 22.5 (15.0, 30.0) | 30.0 (30.0, 30.0) | 81.5 (80.0, 83.0) | choice-cpu:2–4 |\n" in table
    assert table.endswith("| choice-cpu:5–5 |\n")
    (tmp_path / "choice-cpu.csv").write_text("\n".join([lines[0], lines[1], lines[4], lines[2]]) + "\n")
    with pytest.raises(ValueError, match="the rows of beam 1 do not follow each other"):
        TABLES["choosing"]()


def test_rows_say_what_was_measured():
    about = origin()
    assert about["version"] == project_version()
    assert re.fullmatch(r"([0-9a-f]{10}\+?)?", about["commit"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", about["date"])


def test_a_quick_try_replaces_no_published_table(tmp_path):
    assert results_file("moe", "AMD EPYC", None).parent == RESULTS
    assert results_file("moe", "AMD EPYC", None, quick=True).parent == ROOT / "data" / "artifacts" / "bench"
    assert results_file("moe", "AMD EPYC", tmp_path, quick=True).parent == tmp_path
