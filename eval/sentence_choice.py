"""Which sentences of a test set a report shows: some evenly spaced, those systems differ on, the best and the worst."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from eval.metrics import score_from_sums, scorer_for, sentence_statistics

LEGIBLE = range(25, 201)  # characters of a reference that reads well in a column and holds more than a word or two
EVENLY, DIFFERENCES, BEST, WORST = "evenly spaced", "largest differences", "best", "worst"


def legible_places(references: Sequence[str], at_least: int) -> list[int]:
    """Places of references of legible length, equal ones once; all places where fewer than `at_least` are."""
    first = {reference: place for place, reference in reversed(list(enumerate(references)))}
    places = sorted(place for reference, place in first.items() if len(reference) in LEGIBLE)
    return places if len(places) >= at_least else list(range(len(references)))


def sentence_scores(
    systems: Sequence[Sequence[str]], references: Sequence[str], tgt: str, metric: str
) -> NDArray[np.float64]:
    """(systems, sentences): each line by itself, as `sacrebleu --sentence-level`."""
    scorer = scorer_for(metric, tgt, references=[references], by_sentence=True)
    return np.array([[score_from_sums(scorer, row) for row in sentence_statistics(scorer, lines)] for lines in systems])


def evenly_spaced(places: Sequence[int], count: int) -> list[int]:
    """`count` of the places, chosen by position alone."""
    count = min(count, len(places))
    return [places[(2 * k + 1) * len(places) // (2 * count)] for k in range(count)]


def choose(places: Sequence[int], scores: NDArray[np.float64], count: int) -> Mapping[str, list[int]]:
    """At most `count` places of each kind, none twice.

    scores: (systems, places). Differences are from the worst to the best system and above zero; best and worst go by
    the mean of all systems. Equal ones are in the order of the test set.
    """
    found = {EVENLY: evenly_spaced(places, count)}
    spread = scores.max(axis=0) - scores.min(axis=0)
    mean = scores.mean(axis=0)
    for kind, order in ((DIFFERENCES, -spread), (BEST, -mean), (WORST, mean)):
        taken = {place for chosen in found.values() for place in chosen}
        columns = [int(column) for column in np.argsort(order, kind="stable") if places[column] not in taken]
        if kind == DIFFERENCES:
            columns = [column for column in columns if spread[column] > 0]
        found[kind] = [places[column] for column in columns[:count]]
    return {kind: chosen for kind, chosen in found.items() if chosen}
