from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.corpus.languages import LangPair
from pipeline.vocab.config import VocabConfig
from pipeline.vocab.sample import allocate_lines, sample_rows

A, B, C = (LangPair(code, "en") for code in ("aa", "bb", "cc"))
_counts = st.lists(st.integers(0, 5000), min_size=1, max_size=8).map(
    lambda counts: {LangPair(f"x{chr(97 + i)}", "en"): n for i, n in enumerate(counts)}
)


def test_temperature_one_is_proportional() -> None:
    assert allocate_lines({A: 6000, B: 3000, C: 1000}, 100, 1) == {A: 60, B: 30, C: 10}


def test_temperature_two_takes_square_roots() -> None:
    assert allocate_lines({A: 6400, B: 3600, C: 100}, 150, 2) == {A: 80, B: 60, C: 10}


def test_what_a_pair_lacks_goes_to_the_others() -> None:
    # Roots are 80, 60 and 10. Of 1500 rows C gets 100, all it has; of 6300 A then gets 3542.86 and B 2657.14.
    assert allocate_lines({A: 6400, B: 3600, C: 100}, 1500, 2) == {A: 800, B: 600, C: 100}
    assert allocate_lines({A: 6400, B: 3600, C: 100}, 6300, 2) == {A: 3543, B: 2657, C: 100}
    assert allocate_lines({A: 6400, B: 3600, C: 100}, 9000, 2) == {A: 5300, B: 3600, C: 100}


@given(_counts, st.integers(1, 20000), st.floats(1, 100))
def test_allocation_fills_the_budget_and_never_repeats_a_row(
    counts: dict[LangPair, int], budget: int, temperature: float
) -> None:
    taken = allocate_lines(counts, budget, temperature)
    assert sum(taken.values()) == min(budget, sum(counts.values()))
    assert all(0 <= taken[pair] <= n for pair, n in counts.items())
    order = sorted(counts, key=counts.__getitem__)
    assert all(taken[small] <= taken[large] + 1 for small, large in pairwise(order))


def test_sampled_rows_are_distinct_and_a_function_of_seed_and_pair() -> None:
    rows = sample_rows(1000, 300, A, 7)
    assert len(set(rows.tolist())) == 300
    assert rows.tolist() == sorted(rows.tolist())
    assert rows.min() >= 0
    assert rows.max() < 1000
    np.testing.assert_array_equal(rows, sample_rows(1000, 300, A, 7))
    assert not np.array_equal(rows, sample_rows(1000, 300, A, 8))
    assert not np.array_equal(rows, sample_rows(1000, 300, B, 7))
    assert sample_rows(5, 5, A, 1).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source_size": 0}, "vocab.source_size=0 is not positive; choose 1000 or more"),
        (
            {"shared": True},
            "source_size=8000 and target_size=4000: one model has one size; set both to it, or",
        ),
        ({"sample_lines": 0}, "vocab.sample_lines=0 is not positive"),
        ({"temperature": 0.5}, "vocab.temperature=0.5 would favour large pairs; choose 1"),
        ({"temperature": float("nan")}, "vocab.temperature=nan"),
        ({"character_coverage": 0.5}, "vocab.character_coverage=0.5 is out of range; choose 0.9 to 1"),
        ({"seed": -1}, "vocab.seed=-1 is negative; choose 0 or more"),
    ],
)
def test_config_names_field_value_and_remedy(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VocabConfig(**{"shared": False, "source_size": 8000, "target_size": 4000, **changes})
