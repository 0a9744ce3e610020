"""The benchmark of search and choice translates as decoding does, and its table has the means over pairs."""

from dataclasses import replace

import pytest

import bench.decode.choice as choice
from bench.output import write_csv
from pipeline.corpus.languages import LangPair
from pipeline.decode.text.line import Line
from pipeline.decode.text.translator import Translator
from tests.unit.decode.conftest import DECODE, model, vocabulary  # noqa: F401 - fixtures
from tests.unit.decode.text.test_translator import TURKISH, translate

LINES = [Line(text=text, target="en", number=number) for number, text in enumerate([*TURKISH[:5], ""])]
WAYS = {
    "beam 2": {"beam": 2},
    "mbr": {"search": "sample", "draws": 5, "choose": "mbr", "utility": "bleu"},
}


@pytest.fixture
def translator(model, vocabulary):  # noqa: F811
    return Translator(model, vocabulary, DECODE, max_source_tokens=24, long="whole")


@pytest.mark.parametrize("way", WAYS)
def test_translations_are_those_of_decoding(translator, way):
    texts, searching, choosing = choice.translate(translator, LINES, WAYS[way])
    expected = translate(translator.using(replace(DECODE, **WAYS[way])), LINES)
    assert texts == [outcome.text for outcome in expected]
    assert texts[-1] == ""
    assert searching > choosing > 0


def test_each_pair_and_way_has_a_row_with_its_scores(translator, tmp_path):
    pair = LangPair("tr", "en")
    references = choice.translate(translator, LINES, WAYS["beam 2"])[0]
    rows = [*choice.measure(translator, {pair: (LINES, references)}, WAYS, rounds=2)]
    assert [(row["pair"], row["way"], row["sentences"], row["rounds"]) for row in rows] == [
        ("tr-en", way, 6, 2) for way in WAYS
    ]
    assert rows[0]["chrf"] == pytest.approx(100)
    assert rows[1]["chrf"] < 100
    about = {"run": "r", "device": "d", "precision": "fp32"}
    write_csv([{**about, **row} for row in rows], choice.COLUMNS, tmp_path / "out.csv")
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 3


def test_the_table_has_the_means_over_pairs():
    scores = dict.fromkeys(choice.METRICS, 10.0)
    row = {"way": "beam 1", "sentences": 30, "seconds": 2.0, "choosing": 0.5, **scores}
    text = choice.table([row, {**row, "seconds": 4.0, "choosing": 1.0, "bleu": 20.0}])
    assert text.splitlines()[-1].split() == ["beam", "1", "10.0", "25.0", "15.00", "10.00", "10.00", "10.00"]


@pytest.mark.parametrize("option", ["sentences", "rounds"])
def test_nothing_to_measure_is_an_error(monkeypatch, capsys, option):
    monkeypatch.setattr("sys.argv", ["choice", "demo", f"--{option}", "0"])
    with pytest.raises(SystemExit):
        choice.parse()
    assert f"--{option}=0 must be at least 1" in capsys.readouterr().err


def test_every_way_is_a_configuration_of_decoding():
    neutral = replace(DECODE, **choice.NEUTRAL)
    configs = [replace(neutral, **settings) for settings in choice.WAYS.values()]
    assert len({(config.hypotheses, config.search, config.choose, config.utility) for config in configs}) == 10
    assert {config.n_best for config in configs} == {1}
