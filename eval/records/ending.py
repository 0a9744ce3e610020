"""The end of a training as its ledger records it: did the budget cut it off?"""

from collections.abc import Mapping, Sequence
from math import ceil

from eval.records.run_record import Json

MARK = "†"  # stands beside the scores of a model that its budget cut off
MEANING = "ended by budget while still improving"
USUAL_PATIENCE = 4  # of the bilingual models; it judges a run that has no patience of its own


def still_improving(ledger: Json) -> bool:
    """Return True if the budget ended a training that its patience would have let go on.

    Patience is the number of validations in a row without a better one after which a run counts as converged. So a
    model is still improving if fewer validations followed its best one. The budget must have ended it. A ledger of
    version 0.2.5 or older does not record the patience, and gives False.
    """
    if not {"patience", "validate_every"} <= ledger.keys() or ledger.get("stopped") in (None, "patience"):
        return False
    validations_since = ceil((ledger["steps"] - ledger["best_step"]) / ledger["validate_every"])
    return bool(validations_since < int(ledger["patience"] or USUAL_PATIENCE))


def unfinished_systems(systems: Mapping[str, Sequence[Json]], pair: str) -> frozenset[str]:
    """Return the names of the systems whose model of a pair was still improving. systems: the ledgers of a record."""
    models = {
        name: [ledger for ledger in ledgers if ledger.get("pair") in (None, pair)] for name, ledgers in systems.items()
    }
    return frozenset(name for name, ledgers in models.items() if any(map(still_improving, ledgers)))
