import pytest

from eval.score.macro import complete_mean, resource_classes


def test_mean_of_an_incomplete_column_is_none() -> None:
    assert complete_mean([1.0, 2.0]) == 1.5
    assert complete_mean([1.0, None]) is None
    assert complete_mean([]) is None


@pytest.mark.parametrize(
    ("rows", "classes"),
    [
        ([9, 8, 7, 6, 5, 4], {"high": "01", "medium": "23", "low": "45", "all": "012345"}),
        ([9, 0, 8, 7, 6, 5, 4, 0], {"high": "02", "medium": "34", "low": "56", "untrained": "17", "all": "02345617"}),
        ([9, 0, 8, 7, 6, 5], {"untrained": "1", "all": "023451"}),
        ([0, 0, 0, 0, 0, 0], {"all": "012345"}),
    ],
)
def test_pairs_without_training_data_are_in_no_third(rows: list[int], classes: dict[str, str]) -> None:
    by_class = resource_classes({str(pair): count for pair, count in enumerate(rows)})
    assert {name: "".join(pairs) for name, pairs in by_class.items()} == classes
    assert list(by_class) == list(classes)
