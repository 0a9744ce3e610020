import pytest

from eval.text_table import aligned

ROWS = [["pair", "", "rows"], ["de-en", "a b", "1"], ["zh", "1.50", "12,345"]]


@pytest.mark.parametrize(
    ("left", "lines"),
    [
        ((0,), ["pair           rows", "de-en   a b       1", "zh     1.50  12,345"]),
        ((1, 2), [" pair        rows", "de-en  a b   1", "   zh  1.50  12,345"]),
        (None, ["pair         rows", "de-en  a b   1", "zh     1.50  12,345"]),
    ],
)
def test_columns_are_aligned_and_cells_stay_text(left: tuple[int, ...] | None, lines: list[str]) -> None:
    assert aligned(ROWS, left).splitlines() == lines
