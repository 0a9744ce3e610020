"""Which pairs are searched, whose winner a pair takes, and what is written of it."""

import csv
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import load_config
from pipeline.corpus.languages import LangPair
from pipeline.dag.artifact import Artifact
from pipeline.dag.baseline_search import SearchResult, Trial, by_resource, nearest, spanning_pairs
from pipeline.dag.baselines import baseline_systems

# Training rows of the experiment's 38 pairs before cleaning (data/freesoft38).
FREESOFT38 = {
    "da": 232397, "it": 225850, "fr": 171071, "de": 122061, "pl": 84667, "pt-BR": 84217, "ru": 72765, "es": 57833,
    "cs": 53953, "ja": 53827, "zh-Hans": 40441, "nl": 38930, "ko": 37333, "pt": 36115, "ca": 33214, "tr": 32849,
    "hu": 32846, "uk": 32112, "el": 31834, "id": 29045, "zh-Hant": 28920, "sl": 27973, "eu": 27557, "sv": 26497,
    "gl": 25846, "fi": 24964, "et": 23265, "vi": 21851, "sr": 11566, "km": 10376, "sr-Latn": 7648, "lv": 3760,
    "hr": 2453, "mr": 883, "ta": 747, "gu": 686, "fa": 654, "as": 629,
}  # fmt: skip


def rows(**numbers):
    return {LangPair(name.replace("_", "-"), "en"): number for name, number in numbers.items()}


def names(pairs):
    return [pair.src for pair in pairs]


def test_the_searched_pairs_span_the_resources():
    pairs = {LangPair(name, "en"): number for name, number in FREESOFT38.items()}
    searched = spanning_pairs(pairs, 6)
    assert names(searched) == ["da", "ru", "vi", "sr-Latn", "hr", "as"]
    sources = {pair.src: nearest(pairs, pair, searched).src for pair in pairs}
    assert [sources[name] for name in ("it", "de", "nl", "sr", "lv", "mr")] == ["da", "ru", "vi", "sr-Latn", "hr", "as"]
    assert all(sources[pair.src] == pair.src for pair in searched)


def test_ties_go_by_name_and_few_pairs_are_all_searched():
    even = rows(c=100, b=10, a=10, d=1)
    assert names(by_resource(even)) == ["c", "a", "b", "d"]
    assert names(spanning_pairs(even, 3)) == ["c", "a", "d"]
    assert names(spanning_pairs(even, 4)) == names(spanning_pairs(even, 9)) == ["c", "a", "b", "d"]
    assert nearest(even, LangPair("a", "en"), [LangPair("d", "en"), LangPair("c", "en")]).src == "c"


@given(
    st.dictionaries(st.sampled_from("abcdefghijkl"), st.integers(0, 10**6), min_size=2),
    st.integers(2, 14),
)
def test_richest_and_poorest_are_searched_and_each_pair_takes_the_nearest(numbers, number):
    pairs = {LangPair(name, "en"): value for name, value in numbers.items()}
    searched = spanning_pairs(pairs, number)
    assert len(set(searched)) == len(searched) == min(number, len(pairs))
    assert {by_resource(pairs)[0], by_resource(pairs)[-1]} <= set(searched)
    for pair in pairs:
        distance = [abs(math.log(max(pairs[pair], 1)) - math.log(max(pairs[other], 1))) for other in searched]
        source = nearest(pairs, pair, searched)
        assert distance[searched.index(source)] == min(distance)


@pytest.fixture
def result(tmp_path):
    """A search of two pairs, of which the richer has a tie, carried over to a third.

    For the poorer one, long pieces cost more a token and less a character.
    """

    def trial(src, candidate, loss, characters_per_token=2.0):
        path = tmp_path / f"{src}-{candidate}"
        (path / "log").mkdir(parents=True)
        ledger = {"validation_loss": loss, "parameters": 1000, "best_step": 7}
        (path / "log" / "ledger.json").write_text(json.dumps(ledger))
        (path / "manifest.json").write_text(json.dumps({"seconds": 1.25}))
        return Trial(
            pair=LangPair(src, "en"),
            candidate=candidate,
            characters_per_token=characters_per_token,
            model=Artifact(stage="train", key="k", path=path, content="c"),
        )

    de, tr, ja = (LangPair(src, "en") for src in ("de", "tr", "ja"))
    return SearchResult(
        trials=[
            trial("de", "plain", 3.5),
            trial("de", "wide", 3.5),
            trial("tr", "plain", 4.5),
            trial("tr", "wide", 5.25, characters_per_token=2.5),
        ],
        searched={de: de, ja: tr, tr: tr},
    )


def test_the_lowest_loss_wins_and_is_carried_over(result):
    assert result.to_json() == {
        "de-en": {"candidate": "plain", "carried_over_from": None},
        "ja-en": {"candidate": "wide", "carried_over_from": "tr-en"},
        "tr-en": {"candidate": "wide", "carried_over_from": None},
    }


def test_settings_change_where_neighbours_take_another_candidate(result):
    assert result.boundaries(rows(de=9000, ja=400, tr=300)) == [400]
    assert result.boundaries(rows(ja=9000, tr=8000, de=400)) == [400]
    assert result.boundaries(rows(ja=9000, de=8000, tr=400)) == [400, 8000]
    assert result.boundaries(rows(ja=9000, de=9000, tr=400)) == []  # nothing lies between equal rows


def test_the_highest_score_wins_where_all_candidates_are_validated_by_it(result, tmp_path):
    def scored(candidate, score, metric="chrf++"):
        path = tmp_path / f"de-{candidate}" / "log" / "ledger.json"
        values = {"validation_metric": metric, "validation_score": score}
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    de = LangPair("de", "en")
    scored("wide", 30.0)
    assert result.winner(de) == "plain"  # the other has no score, and the loss is equal
    scored("plain", 20.0, "chrf")
    assert result.winner(de) == "plain"  # by another metric
    scored("plain", 20.0)
    assert result.winner(de) == "wide"
    scored("plain", 30.0)
    assert result.winner(de) == "plain"  # equal in loss too, so the first
    result.save(tmp_path / "search.csv", rows(de=9000, tr=400))
    with (tmp_path / "search.csv").open(newline="") as stream:
        lines = list(csv.DictReader(stream))
    assert [(line["validation_metric"], line["validation_score"]) for line in lines] == [
        *[("chrf++", "30.0000")] * 2,
        *[("", "")] * 2,
    ]


def test_every_pair_has_its_own_tier_as_the_candidate_it_takes(result):
    search = "baselines.search={pairs: 2, candidates: [{name: plain}, {name: wide, model: {ffn_dim: 640}}]}"
    config = load_config(["recipes=demo", search])
    systems = baseline_systems(config, rows(de=9000, tr=400, ja=9000), result)
    poor, *_, rich = (tier.train.max_tokens for tier in config.baselines.tiers)
    assert [(s.label, s.model.ffn_dim, s.train.max_tokens) for s in systems] == [
        ("bilingual de-en", 512, rich),
        ("bilingual ja-en", 640, rich),
        ("bilingual tr-en", 640, poor),
    ]
    assert {(s.runtime.processes, s.runtime.ep, s.runtime.mp, *s.layout) for s in systems} == {(1, 1, 1)}
    plain = baseline_systems(load_config(["recipes=demo"]), rows(de=9000, tr=400), None)
    assert [system.model.ffn_dim for system in plain] == [512, 512]


def test_the_table_has_a_line_for_each_trial(result, tmp_path):
    result.save(tmp_path / "search.csv", rows(de=9000, tr=400))
    with (tmp_path / "search.csv").open(newline="") as stream:
        lines = list(csv.DictReader(stream))
    assert [(line["pair"], line["candidate"], line["chosen"]) for line in lines] == [
        ("de-en", "plain", "1"),
        ("de-en", "wide", "0"),
        ("tr-en", "plain", "0"),
        ("tr-en", "wide", "1"),
    ]
    assert lines[3] == {
        "pair": "tr-en",
        "train_pairs": "400",
        "candidate": "wide",
        "parameters": "1000",
        "best_step": "7",
        "validation_loss": "5.2500",
        "nats_per_character": "2.1000",
        "chosen": "1",
        "seconds": "1.2",
    }
