import pytest

from eval.records.results import RunResults, group_seeds
from eval.report.comparison import differences, headline_of, settings
from eval.report.sections.cost import cost_groups
from tests.unit.eval.finished import finished


def _headline(runs: list[RunResults], num_pairs: int = 6) -> str:
    return headline_of(cost_groups(group_seeds(runs), {run.label: [] for run in runs}, ()), num_pairs)


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


def test_the_headline_names_the_best_and_compares_at_equal_flops() -> None:
    dense, moe = finished("dense", bleu=8, bilingual=10), finished("moe", experts=8, bleu=9, bilingual=10)
    deep = finished("deep", experts=8, flops=9e6, bleu=7, bilingual=10)
    assert _headline([dense, moe, deep]) == (
        "moe has the highest mean BLEU of 3 systems over 6 language pairs, 9.5, 0.5 below the bilingual baselines. "
        "Against the dense model of equal FLOPs: moe +1.0."
    )
    moe = finished("moe", experts=8, bleu=6)
    assert _headline([finished("dense", bleu=8), moe]) == (
        "dense has the highest mean BLEU of 2 systems over 6 language pairs, 8.5, "
        "without bilingual baselines to compare with. Against the dense model of equal FLOPs: moe −2.0."
    )
