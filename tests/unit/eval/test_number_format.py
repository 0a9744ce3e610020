import pytest

from eval.number_format import MISSING, decimal, duration, p_value, percent, quantity, share, signed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (signed(1.25), "+1.2"),
        (signed(-0.36), "−0.4"),
        (signed(-0.04), "0.0"),
        (decimal(-1234.5), "−1,234.5"),
        (percent(0.576), "58 %"),
        (quantity(999_600), "1.00 M"),
        (quantity(18.2e12), "18.2 T"),
        (duration(59.6), "1 min 00 s"),
        (duration(7384), "2 h 03 min"),
        (p_value(1 / 1001, 1000), "≤ 0.001"),
        (p_value(0.0416, 1000), "0.042"),
        (p_value(None, 1000), MISSING),
        (share(0.0), "0.0 %"),
        (share(1e-5), "<0.1 %"),
        (share(0.0123), "1.2 %"),
        (share(0.99999), ">99.9 %"),
        (share(1.0), "100 %"),
    ],
)
def test_numbers_are_written_for_readers(text: str, expected: str) -> None:
    assert text == expected
