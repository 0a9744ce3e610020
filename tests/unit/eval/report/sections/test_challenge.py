"""The section on challenge sets: a table by pair and kind, means over pairs, and what is left out."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from eval.records.challenge import ChallengeRow, save_challenge
from eval.records.results import load_results
from eval.report.page import write_report
from eval.report.sections.challenge import challenge_section
from eval.score.run import write_scores
from tests.unit.eval.conftest import MakeRun
from tests.unit.eval.report.test_page import Page

PAIRS = ["de-en", "en-fr"]


def row(pair: str, system: str, kind: str, loss: float) -> ChallengeRow:
    values = {"n_test": 20, "plain": 50.0, "changed": 50.0 - loss, "loss": loss, "signature": "nw:2"}
    values |= {"ci_low": loss - 1, "ci_high": loss + 1, "p_value": 0.01}
    return ChallengeRow(pair=pair, system=system, kind=kind, **values)  # type: ignore[arg-type]


@pytest.fixture
def run(make_run: MakeRun) -> Path:
    directory = make_run(PAIRS)
    write_scores(directory, n_resamples=20)
    challenge = make_run(PAIRS, folder="run/test_sets/challenge")
    rows = [row(pair, "moe", "upper", loss) for pair, loss in zip(PAIRS, (4.0, 10.0), strict=True)]
    save_challenge(challenge, [*rows, row("de-en", "moe", "word", 2.0), row("de-en", "bilingual", "upper", 8.0)])
    return directory


def test_losses_by_pair_and_kind_and_their_means(run: Path) -> None:
    section = challenge_section(load_results([("mine", run)]))
    assert section is not None
    (table,) = section.tables
    assert table.title == "challenge (test_sets/)"
    assert {kind: {system: mean.loss for system, mean in means.items()} for kind, means in table.means.items()} == {
        "upper case": {"moe": 7.0},  # the bilingual models lack a pair
        "one word": {"moe": 2.0},
    }
    text = write_report(run, load_results([("mine", run)])).read_text(encoding="utf-8")
    part = text[text.index('<section id="challenge">') : text.index('<section id="training">')]
    cells = [cell for cell in Page(part).text if cell]
    start = len(cells) - 1 - cells[::-1].index("upper case") - 1  # the last row, en-fr
    assert cells[start : start + 8] == ["en-fr", "upper case", "20", "50.0", "40.0", "10.0", "[9.0, 11.0]", "–"]
    assert "#challenge" in Page(text).attributes("href")
    assert "further-tests" not in text  # it has no scores of other metrics


def test_a_kind_of_few_lines_has_no_interval(run: Path) -> None:
    save_challenge(run / "test_sets" / "challenge", [replace(row("de-en", "moe", "upper", 4.0), n_test=19)])
    text = write_report(run, load_results([("mine", run)])).read_text(encoding="utf-8")
    part = text[text.index('<section id="challenge">') : text.index('<section id="training">')]
    assert "Fewer than 20 lines" in part
    assert "[3.0, 5.0]" not in part


def test_it_says_how_the_set_was_decoded_and_what_was_not_trained(run: Path) -> None:
    own, path = run / "run.json", run / "test_sets" / "challenge" / "run.json"
    for file, beam in ((own, 4), (path, 1)):
        record = json.loads(file.read_text(encoding="utf-8"))
        record["config"] = {**record.get("config", {}), "decode": {"beam": beam}}
        record |= {"untrained": ["en-fr"]} if file == path else {}
        file.write_text(json.dumps(record), encoding="utf-8")
    text = write_report(run, load_results([("mine", run)])).read_text(encoding="utf-8")
    part = text[text.index('<section id="challenge">') : text.index('<section id="training">')]
    assert "Decoded unlike the run's own test sets: decode.beam=1." in part
    assert "Not trained on: en-fr." in part
    assert "Translated together" not in part


def test_a_set_of_an_older_model_is_named_and_not_shown(run: Path) -> None:
    path = run / "test_sets" / "challenge" / "run.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    record["systems"]["moe"][0]["artifacts"] = {"model": "train/old"}
    path.write_text(json.dumps(record), encoding="utf-8")
    section = challenge_section(load_results([("one", run), ("two", run)]))
    assert section is not None
    assert section.tables == []
    assert section.outdated == ["one, challenge (test_sets/)", "two, challenge (test_sets/)"]


def test_a_run_without_challenge_sets_has_no_section(make_run: MakeRun) -> None:
    directory = make_run(PAIRS[:1])
    write_scores(directory, n_resamples=20)
    assert challenge_section(load_results([("mine", directory)])) is None
