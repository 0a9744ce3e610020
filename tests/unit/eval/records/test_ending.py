from typing import Any

import pytest

from eval.records.ending import still_improving, unfinished_systems


def ledger(**changes: Any) -> dict[str, Any]:
    """Return the record of a model that its budget ended at its best validation."""
    values = {"stopped": "budget", "steps": 725, "best_step": 725, "validate_every": 60, "patience": 4}
    return {**values, **changes}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"best_step": 720}, True),  # the validation at the end of the budget, 5 steps later, is one
        ({"best_step": 600}, True),  # after it came 660, 720 and 725
        ({"best_step": 540}, False),  # after it came four: out of patience in the very step that spent the budget
        ({"stopped": "patience"}, False),
        ({"stopped": None}, False),
        ({"patience": 0, "best_step": 600}, True),
        ({"patience": 0, "best_step": 480}, False),
        ({"patience": 2, "best_step": 600}, False),
    ],
)
def test_a_budget_cuts_off_what_its_patience_would_have_let_go_on(changes: dict[str, Any], expected: bool) -> None:
    assert still_improving(ledger(**changes)) == expected


@pytest.mark.parametrize("key", ["patience", "validate_every"])
def test_an_old_record_says_nothing(key: str) -> None:
    values = ledger()
    del values[key]
    assert not still_improving(values)


def test_the_systems_of_a_pair_are_named_by_their_models() -> None:
    systems = {
        "moe": [ledger(pair=None)],
        "bilingual": [ledger(pair="de-en"), ledger(pair="tr-en", stopped="patience")],
    }
    assert unfinished_systems(systems, "de-en") == {"moe", "bilingual"}
    assert unfinished_systems(systems, "tr-en") == {"moe"}
    assert unfinished_systems({}, "tr-en") == frozenset()
