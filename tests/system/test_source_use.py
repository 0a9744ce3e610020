"""`python -m bench.experiment source` with the smoke run."""

import pytest

from bench.experiment.source_use import measure
from eval.records.run_record import load_losses


def test_a_run_has_its_losses_on_the_test_sets(place, results):
    (row,) = measure([results], place.root / "artifacts", sentences=20)
    assert (row["run"], row["pairs"], row["sentences"]) == ("smoke", 2, 40)
    *_, validation = load_losses(results, "validation")
    assert row["loss"] == pytest.approx(validation.cross_entropy, rel=0.2)  # development sets are not test sets
    assert row["difference"] == row["loss_with_others"] - row["loss"]


def test_a_single_sentence_has_no_other_source(place, results):
    with pytest.raises(ValueError, match=r"one sentence of .* has no other source; test two or more"):
        measure([results], place.root / "artifacts", sentences=1)
