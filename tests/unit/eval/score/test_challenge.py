"""Losses of a challenge set: of the same lines, with the change made to the plain translation too."""

import json
from dataclasses import replace

import pytest

from eval.records.challenge import KINDS, load_challenge
from eval.records.run_record import Translation
from eval.score.challenge import score_kind, text_table, write_challenge
from eval.score.significance import resample
from tests.unit.eval.conftest import write_jsonl

PLAIN = [("The street in Hannover is closed.", "The street in Hannover is closed."), ("We go home.", "We all go home.")]


def lines_of(changed):
    """Return the lines of a set with PLAIN (reference and hypothesis), and with `changed` (those, kind, plain line)."""
    plain = [(reference, text, "plain", number) for number, (reference, text) in enumerate(PLAIN, start=1)]
    return [
        Translation(source="", reference=reference, hypothesis=text, score=None, kind=kind, plain_line=number)
        for reference, text, kind, number in [*plain, *changed]
    ]


@pytest.mark.parametrize(
    ("kind", "reference", "translation"),
    [
        ("upper", "THE STREET IN HANNOVER IS CLOSED.", "the street in HANNOVER is closed."),
        ("title", "The Street In Hannover Is Closed.", "The street in Hannover is closed."),
        ("full_stop", "The street in Hannover is closed", "The street in Hannover is closed"),
        ("typos", "The street in Hannover is closed.", "The street in Hannover is closed."),
        ("word", "Hannover", "Hannover"),
        ("number", "417", "417"),
        ("emoji", "🎉", "🎉"),
    ],
)
def test_a_model_that_is_not_disturbed_loses_nothing(kind, reference, translation):
    plain, changed = score_kind(lines_of([(reference, translation, kind, 1)]), kind, "en", n_resamples=20)
    assert (plain.score, changed.score, plain.n) == (pytest.approx(100), pytest.approx(100), 1)
    plain, changed = score_kind(lines_of([(reference, "and so on", kind, 1)]), kind, "en", n_resamples=20)
    assert plain.score == pytest.approx(100)
    assert changed.score < 30


def test_the_plain_score_is_that_of_the_lines_which_have_the_kind():
    changed = [("We go home.", "We do go home.", "typos", 2)]
    plain, _ = score_kind(lines_of(changed), "typos", "en", n_resamples=20)
    (alone,) = resample([["We all go home."]], ["We go home."], "en", "chrf++", n_resamples=20)
    assert plain.score == alone.score
    assert score_kind(lines_of(changed), "word", "en") is None


def test_a_word_that_the_sentence_lost_is_no_loss():
    plain, changed = score_kind(lines_of([("Bremen", "Bremen", "word", 1)]), "word", "en", n_resamples=20)
    assert (plain.score, changed.score) == (0, pytest.approx(100))


def test_turkish_has_two_letters_i():
    changed = [("IŞIK İYİ", "ışık iyi", "upper", 1)]
    for code in ("tr", "tur"):
        _, score = score_kind(lines_of(changed), "upper", code, n_resamples=20)
        assert score.score == pytest.approx(100)
    _, score = score_kind(lines_of(changed), "upper", "en", n_resamples=20)
    assert score.score < 100


@pytest.mark.parametrize("plain_line", [None, 3, 9])
def test_a_line_needs_its_plain_line(plain_line):
    with pytest.raises(ValueError, match="a line of the kind typos names no plain line; score the challenge set again"):
        score_kind(lines_of([("a", "b", "typos", plain_line)]), "typos", "en")


@pytest.fixture
def run(tmp_path):
    """A challenge set of one pair, and two systems, of which one loses much."""
    for system, text in (("moe", "The street in Hannover is closed."), ("bilingual", "xxx")):
        rows = [
            {"source": "s", "reference": line.reference, "hypothesis": line.hypothesis, "kind": line.kind}
            | {"plain_line": line.plain_line}
            for line in lines_of([(PLAIN[0][0], text, "typos", 1), ("417", text, "number", 1)])
        ]
        write_jsonl(tmp_path / "translations" / system / "de-en.jsonl", rows)
    record = {"name": "r", "pairs": ["de-en"], "train_pairs": {"de-en": 5}, "systems": {"moe": [], "bilingual": []}}
    (tmp_path / "run.json").write_text(json.dumps(record), encoding="utf-8")
    return tmp_path


def test_every_system_and_kind_has_a_row(run):
    write_challenge(run, n_resamples=20)
    rows = load_challenge(run)
    assert [(row.system, row.kind) for row in rows] == [
        (system, kind) for system in ("moe", "bilingual") for kind in ("typos", "number")
    ]
    by_place = {(row.system, row.kind): row for row in rows}
    assert by_place["moe", "typos"].loss == pytest.approx(0)
    loser = by_place["bilingual", "typos"]
    assert loser.loss == pytest.approx(loser.plain - loser.changed, abs=1e-3)
    assert loser.ci_low > 50
    assert "nw:2" in loser.signature
    table = text_table(rows, {"moe": "multilingual", "bilingual": "bilingual"}).splitlines()
    assert table[0].split()[:5] == ["pair", "kind", "lines", "multilingual", "plain"]
    assert [line.split("  ")[1].strip() for line in table[1:]] == [KINDS["typos"].title, KINDS["number"].title]
    assert all(" to " not in line for line in table[1:])  # an interval of one line has no width
    table = text_table([replace(row, n_test=20) for row in rows], {"moe": "multilingual", "bilingual": "bilingual"})
    assert all(line.count(" to ") == 2 for line in table.splitlines()[1:])
