import json
from pathlib import Path

from eval.records.funnel import load_funnels, save_funnel, settings_of, text_table, total
from tests.unit.eval.funnels import data_record, pair_funnel


def test_the_funnel_as_csv(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text(json.dumps(data_record()), encoding="utf-8")
    save_funnel(tmp_path / "funnel.csv", load_funnels(tmp_path / "data.json"))
    assert (tmp_path / "funnel.csv").read_text().splitlines()[:4] == [
        "pair,split,read,changed,too_long,identical,duplicate,kept,too_many_tokens",
        "fa-en,train,1000,7,1,0,9,990,2",
        "fa-en,dev,200,,,,,200,",
        "fa-en,test,200,,,,,200,",
    ]


def test_the_funnel_as_text() -> None:
    funnels = [
        pair_funnel("de-en", 60_000, {"too_long": 1, "few_letters": 300}),
        pair_funnel("zh-Hans-en", 1_000, {"too_long": 0, "few_letters": 0}, dropped=15),
    ]
    assert text_table(funnels).splitlines()[1:] == [
        "                             kept    too      few  too many",
        "pair          read    kept      %   long  letters    tokens  dev  test",
        "de-en       60,000  59,699   99.5  <0.01     0.50         0  200   298",
        "zh-Hans-en   1,000   1,000  100.0      0        0      1.50  200   298",
        "all pairs   61,000  60,699   99.5  <0.01     0.49      0.02",
    ]


def test_totals_do_not_hide_what_one_pair_does_not_say() -> None:
    everything = total(
        [pair_funnel("de-en", 10, {"too_long": 1}), pair_funnel("tr-en", 10, {"identical": 2}, dropped=None)]
    )
    assert (everything.read, everything.kept, everything.removed) == (20, 17, {"too_long": 1, "identical": 2})
    assert everything.too_many_tokens is None


def test_settings_are_written_as_the_command_line_takes_them() -> None:
    config = {"corpus": {"rules": {"max_chars": 9, "duplicates": True, "held_out": {"shingle_words": 8}}}}
    assert settings_of("too_long", config) == ["corpus.rules.max_chars=9"]
    assert settings_of("held_out", config) == ["corpus.rules.held_out.shingle_words=8"]
    assert settings_of("duplicate", config) == ["corpus.rules.duplicates=true"]
    assert settings_of("language", config) == settings_of("mine", config) == settings_of("script", {}) == []


def test_settings_of_learned_cleaning_are_named_where_they_say_something() -> None:
    dual = {"corpus": {"rules": {}, "learned": {"kind": "dual", "remove": 0.1, "remove_of": {}}}}
    assert settings_of("dual_cross_entropy", dual) == ["corpus.learned.remove=0.1"]
    files = {"corpus": {"learned": {"kind": "scores", "remove": 0.0, "remove_of": {}, "min_score": 0.5}}}
    assert settings_of("low_score", files) == ["corpus.learned.remove=0.0", "corpus.learned.min_score=0.5"]
    assert settings_of("low_score", {"corpus": {"learned": None}}) == []
