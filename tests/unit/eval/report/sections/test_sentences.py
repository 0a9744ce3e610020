import json
from pathlib import Path
from typing import Any

from eval import number_format
from eval.records.results import load_results
from eval.report.sections.sentences import sentences_section
from eval.report.templating import environment
from eval.score.run import write_scores
from tests.unit.eval.conftest import MakeRun, config_of


def _run(make_run: MakeRun, folder: str, damage: dict[str, float], **keys: Any) -> tuple[str, Path]:
    run_dir = make_run(["de-en", "fr-en"], damage=damage, folder=folder, **keys)
    write_scores(run_dir, metrics=["bleu"], n_resamples=10)
    return folder, run_dir


def test_systems_stand_under_each_other_once_a_seed_and_with_the_baselines(make_run: MakeRun) -> None:
    runs = load_results(
        [
            _run(make_run, "dense_s1", {"moe": 0.3, "bilingual": 0.4}, config=config_of(0)),
            _run(make_run, "dense_s2", {"moe": 0.31, "bilingual": 0.4}, config=config_of(0, 2)),
            _run(make_run, "moe_8e", {"moe": 0.1}, config=config_of(8)),
        ]
    )
    section = sentences_section(runs)
    assert section is not None
    assert [pair["pair"] for pair in section["pairs"]] == ["de-en", "fr-en"]
    kinds = dict(section["pairs"][0]["groups"])
    assert list(kinds) == ["evenly spaced", "largest differences", "best", "worst"]
    all_lines = [line for lines in kinds.values() for line in lines]
    assert len({line["line"] for line in all_lines}) == 12
    for line in all_lines:
        assert [label for label, _, _ in line["hypotheses"]] == ["dense_s1", "moe_8e", "bilingual"]
    means = {kind: [sum(h[1] for h in line["hypotheses"]) for line in lines] for kind, lines in kinds.items()}
    assert min(means["best"]) > max(means["worst"])
    assert section["metric"] == "BLEU"


def test_one_run_that_forbids_it_hides_all_sentences(make_run: MakeRun) -> None:
    runs = [_run(make_run, "a", {"moe": 0.3}), _run(make_run, "b", {"moe": 0.2}, sample_sentences=False)]
    assert sentences_section(load_results(runs)) is None
    assert sentences_section(load_results(runs[:1])) is not None
    assert sentences_section([]) is None


def test_another_test_set_is_named_and_not_shown(make_run: MakeRun) -> None:
    runs = [
        _run(make_run, "a", {"moe": 0.3}, config=config_of(0)),
        _run(make_run, "b", {"moe": 0.2}, config=config_of(8)),
    ]
    path = runs[1][1] / "translations" / "moe" / "de-en.jsonl"
    path.write_text(path.read_text(encoding="utf-8").replace("source 1", "other 1"), encoding="utf-8")
    section = sentences_section(load_results(runs))
    assert section is not None
    assert [pair["left_out"] for pair in section["pairs"]] == [["b"], []]
    page = environment().get_template("sentences_section.html.j2").render(sentences=section, n=number_format)
    assert "b translates another test set." in page
    assert "other 1" not in page


def test_hostile_text_is_escaped_and_directions_are_of_the_languages(make_run: MakeRun) -> None:
    hostile = "<script>alert('x')</script> & more of it in a line"
    name, run_dir = "run", make_run(["en-ar"], damage={"moe": 0.3}, num_lines=3)
    line = {"source": hostile, "hypothesis": hostile, "reference": "مرحبا بالعالم"}
    (run_dir / "translations" / "moe" / "en-ar.jsonl").write_text((json.dumps(line) + "\n") * 3, encoding="utf-8")
    write_scores(run_dir, metrics=["bleu"], n_resamples=10)
    section = sentences_section(load_results([(name, run_dir)]))
    page = environment().get_template("sentences_section.html.j2").render(sentences=section, n=number_format)
    assert "<script" not in page
    assert page.count('<dd lang="en" dir="ltr">') == 3
    assert page.count('<dd lang="ar" dir="rtl">') == 6


def test_all_pairs_but_the_first_are_folded(make_run: MakeRun) -> None:
    section = sentences_section(load_results([_run(make_run, "a", {"moe": 0.3})]))
    page = environment().get_template("sentences_section.html.j2").render(sentences=section, n=number_format)
    assert [line for line in page.splitlines() if line.startswith("<details")] == [
        '<details class="examples" open>',
        '<details class="examples">',
    ]
