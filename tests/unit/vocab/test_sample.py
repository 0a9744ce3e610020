import logging
import tracemalloc
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.corpus.bitext import write_bitext
from pipeline.corpus.languages import LangPair
from pipeline.vocab.config import VocabConfig
from pipeline.vocab.sample import LONGEST_TEXT, Sample, allocate_lines, sample_rows

A, B, C = (LangPair(code, "en") for code in ("aa", "bb", "cc"))
_counts = st.lists(st.integers(0, 5000), min_size=1, max_size=8).map(
    lambda counts: {LangPair(f"x{chr(97 + i)}", "en"): n for i, n in enumerate(counts)}
)


def test_shares_are_roots_of_the_rows_by_temperature() -> None:
    assert allocate_lines({A: 6000, B: 3000, C: 1000}, 100, 1) == {A: 60, B: 30, C: 10}
    assert allocate_lines({A: 6400, B: 3600, C: 100}, 150, 2) == {A: 80, B: 60, C: 10}


def test_rows_that_a_pair_lacks_go_to_the_others() -> None:
    # Roots are 80, 60 and 10. Of 1500 rows C gets 100, all it has; of 6300 A then gets 3542.86 and B 2657.14.
    assert allocate_lines({A: 6400, B: 3600, C: 100}, 1500, 2) == {A: 800, B: 600, C: 100}
    assert allocate_lines({A: 6400, B: 3600, C: 100}, 6300, 2) == {A: 3543, B: 2657, C: 100}
    assert allocate_lines({A: 6400, B: 3600, C: 100}, 9000, 2) == {A: 5300, B: 3600, C: 100}


@given(_counts, st.integers(1, 20000), st.floats(1, 100))
def test_allocation_fills_the_budget_and_never_repeats_a_row(
    counts: dict[LangPair, int], budget: int, temperature: float
) -> None:
    lines = allocate_lines(counts, budget, temperature)
    assert sum(lines.values()) == min(budget, sum(counts.values()))
    assert all(0 <= lines[pair] <= n for pair, n in counts.items())
    order = sorted(counts, key=counts.__getitem__)
    assert all(lines[small] <= lines[large] + 1 for small, large in pairwise(order))


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


@pytest.mark.parametrize(("num_rows", "num_sampled"), [(10_000_000, 200_000), (4_000_000, 200_001)])
def test_sampling_needs_memory_for_the_sample_alone(num_rows: int, num_sampled: int) -> None:
    tracemalloc.start()
    rows = sample_rows(num_rows, num_sampled, A, 1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(rows) == num_sampled
    assert peak <= 200 * num_sampled, peak  # 160 bytes for each row, and a margin


def written(directory: Path, src: list[str], tgt: list[str]) -> Path:
    directory.mkdir()
    write_bitext(directory / "train.arrow", [pa.record_batch({"src": src, "tgt": tgt})])
    return directory


def test_texts_come_in_order_and_thousand_by_thousand(tmp_path: Path) -> None:
    numbers = range(5000)
    bitexts = {
        A: written(tmp_path / "a", [f"s{i}" for i in numbers], [f"t{i}" for i in numbers]),
        B: written(tmp_path / "b", ["x", "y"], ["X", "Y"]),
    }
    rows = sample_rows(5000, 2300, A, 1)
    sample = Sample(bitexts, {A: rows, B: np.array([1])})
    first, second, third = rows[:1000], rows[1000:2000], rows[2000:]
    assert list(sample.texts(["src"])) == [*(f"s{i}" for i in rows), "y"]
    assert list(sample.texts(["src", "tgt"])) == [
        *(f"{side}{i}" for block in (first, second, third) for side in "st" for i in block),
        *("y", "Y"),
    ]


def test_a_sample_of_long_texts_loses_the_same_share_of_every_pair(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [f"{i:100d}" for i in range(4000)]
    bitexts = {
        A: written(tmp_path / "a", lines[:3000], ["t"] * 3000),
        B: written(tmp_path / "b", [*lines[3000:], "a" * LONGEST_TEXT, "b" * (LONGEST_TEXT + 1)], ["t"] * 1002),
    }
    everything = Sample(bitexts, {A: np.arange(3000), B: np.arange(1002)})
    assert sum(1 for _ in everything.limited(["tgt"], 4002, 1).texts(["tgt"])) == 4002
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        kept = list(everything.limited(["src"], 150_000, 1).texts(["src"]))
    assert len(kept) == 1500
    assert set(kept) <= set(lines)  # the longest text allowed in a sample has more characters than this sample
    assert 1050 < sum(int(text) < 3000 for text in kept) < 1200  # 3/4 of 1500, within four standard deviations of 17
    assert "of 4002 sampled rows 1 are left out as longer than 262144 characters and 2501 as more" in caplog.text
    assert kept == list(everything.limited(["src"], 150_000, 1).texts(["src"]))
    assert kept != list(everything.limited(["src"], 150_000, 2).texts(["src"]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source_size": 0}, "vocab.source_size=0 is not positive; choose 1000 or more"),
        (
            {"shared": True},
            "source_size=8000 and target_size=4000: one model has one size; set both to it, or",
        ),
        ({"sample_lines": 0}, "vocab.sample_lines=0 is not positive"),
        ({"sample_chars": 0}, "vocab.sample_chars=0 is not positive"),
        ({"temperature": 0.5}, "vocab.temperature=0.5 would favour large pairs; choose 1"),
        ({"temperature": float("nan")}, "vocab.temperature=nan"),
        ({"character_coverage": 0.5}, "vocab.character_coverage=0.5 is out of range; choose 0.9 to 1"),
        ({"seed": -1}, "vocab.seed=-1 is negative; choose 0 or more"),
    ],
)
def test_config_names_field_value_and_remedy(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VocabConfig(**{"shared": False, "source_size": 8000, "target_size": 4000, **changes})
