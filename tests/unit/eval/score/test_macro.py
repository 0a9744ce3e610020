from eval.score.macro import complete_mean


def test_mean_of_an_incomplete_column_is_none() -> None:
    assert complete_mean([1.0, 2.0]) == 1.5
    assert complete_mean([1.0, None]) is None
    assert complete_mean([]) is None
