import pytest

from eval.records.run_record import LossPoint
from eval.report.plots.loss_levels import lowest_loss, moving_mean, round_levels, tokens_to


def _points(losses: list[float]) -> list[LossPoint]:
    return [
        LossPoint(step=n, target_tokens=1000 * n, cross_entropy=loss, pairs={})
        for n, loss in enumerate(losses, start=1)
    ]


def test_the_moving_mean_is_the_hand_computation() -> None:
    # 40 records average over two on either side, fewer where there are fewer before or after.
    values = [float(n * n) for n in range(40)]
    means = moving_mean(values)
    assert means[:3] == pytest.approx([0, (0 + 1 + 4) / 3, (0 + 1 + 4 + 9 + 16) / 5])
    assert means[-2:] == pytest.approx([(36**2 + 37**2 + 38**2 + 39**2) / 4, (37**2 + 38**2 + 39**2) / 3])
    assert moving_mean([3.0, 1.0]).tolist() == [3, 1]


def test_tokens_to_a_loss_are_those_of_the_first_record_at_it() -> None:
    train = _points([4.0, 3.0, 2.0, 2.5, 1.5])
    assert [tokens_to(train, level) for level in (4.0, 2.9, 2.0, 1.5)] == [1000, 3000, 3000, 5000]
    assert tokens_to(train, 1.4) is None
    assert tokens_to([], 1.4) is None


def test_a_single_dip_does_not_reach_a_level() -> None:
    train = _points([3.0] * 40 + [1.0] + [3.0] * 19)
    assert tokens_to(train, 2.0) is None
    assert lowest_loss(train) == pytest.approx(3 - 2 / 7)
    assert lowest_loss([]) is None


@pytest.mark.parametrize(
    ("lowest", "levels"),
    [
        ([0.47, 0.62], (0.7, 0.6, 0.5)),  # as in Table 2 of GShard
        ([2.04], (2.3, 2.2, 2.1)),
        ([2.1, 2.9], (3.5, 3.0, 2.5)),
        ([4.41, 4.55], (5.0, 4.8, 4.6)),
        ([1.0, 9.0], (6.0, 4.0, 2.0)),  # steps are no wider than 2
        ([], ()),
    ],
)
def test_levels_are_round_and_reached_by_some(lowest: list[float], levels: tuple[float, ...]) -> None:
    assert round_levels(lowest) == levels
