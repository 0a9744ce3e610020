import pytest

from eval.score.verdict import no_verdict


@pytest.mark.parametrize(
    ("num_lines", "bleu", "reason"),
    [
        (100, [1.0, 0.2], ""),
        (99, [30.0, 20.0], "under 100 test lines"),
        (300, [0.99, 0.4], "all below BLEU 1"),
        (300, [0.99, 1.0], ""),
    ],
)
def test_small_tests_and_broken_systems_get_no_verdict(num_lines: int, bleu: list[float], reason: str) -> None:
    assert no_verdict(num_lines, bleu) == reason
