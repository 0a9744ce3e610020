import pytest

from eval.records.results import RunResults
from eval.report.comparison import differences, settings
from tests.unit.eval.finished import finished


def test_equal_runs_differ_in_nothing() -> None:
    runs = [finished("dense", seed=1), finished("moe", experts=8, seed=2, ledger={"tokens": 1010})]
    assert differences(runs) == []
    assert differences(runs[:1]) == []


@pytest.mark.parametrize(
    ("run", "aspects"),
    [
        (finished("b", sizes={"de-en": 6000}), ["language pairs", "training data", "test sets"]),
        (finished("b", corpus={"path": "elsewhere"}), ["training data"]),
        (finished("b", vocab={"target_size": 4000}), ["vocabularies"]),
        (finished("b", batch={"groups_per_step": 4}), ["batches"]),
        (finished("b", train={"max_tokens": 5}), ["budget"]),
        (finished("b", baselines=[{"up_to": 0}]), ["bilingual baselines"]),
        (finished("b", decode={"beam": 4}), ["decoding"]),
        (finished("b", ledger={"tokens": 900}), ["target tokens seen"]),
    ],
)
def test_what_makes_runs_unequal_is_named_with_its_runs(run: RunResults, aspects: list[str]) -> None:
    rows = differences([finished("a"), run, finished("c")])
    assert [difference.aspect for difference in rows] == aspects
    for difference in rows:
        labels = [labels for _, labels in difference.values]
        assert labels in ([["a", "c"], ["b"]], [["a"], ["b"], ["c"]])


def test_settings_that_make_runs_unequal_are_named_and_many_are_counted() -> None:
    runs = [finished("a"), finished("b", train={"max_tokens": 5}, decode=dict.fromkeys("stuvwx", 1))]
    assert [list(difference.values) for difference in differences(runs)] == [
        [("train.max_tokens=None", ["a"]), ("train.max_tokens=5", ["b"])],
        [
            ("decode=None, decode.s=–, decode.t=–, decode.u=– and 3 more", ["a"]),
            ("decode=–, decode.s=1, decode.t=1, decode.u=1 and 3 more", ["b"]),
        ],
    ]


def test_settings_are_cut_into_those_that_differ_and_those_in_common() -> None:
    shared = {"a": {"b": 1}, "tiers": [{"up_to": 5}, {"up_to": 0}], "empty": [], "pairs": ["de-en"]}
    parts = settings({"x": {**shared, "k": {"seed": 1}}, "y": {**shared, "k": {"seed": 2, "extra": True}}})
    assert parts.labels == ["x", "y"]
    assert parts.differing == [("k.seed", ["1", "2"]), ("k.extra", ["–", "True"])]
    assert parts.common == {
        "a.b": "1",
        "tiers.0.up_to": "5",
        "tiers.1.up_to": "0",
        "empty": "[]",
        "pairs": "['de-en']",
    }
