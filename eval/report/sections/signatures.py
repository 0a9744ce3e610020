"""The signatures of the scores on a page: by which version and settings of a metric each was made."""

from collections.abc import Sequence

from eval.records.results import System
from eval.records.scores import METRICS


def signature_rows(systems: Sequence[System]) -> list[tuple[str, str, str]]:
    """Return rows (metric, signature, pairs that it belongs to).

    The systems are named unless the signature belongs to the same pairs of all systems.
    """
    pairs_of: dict[tuple[str, str], dict[str, dict[str, None]]] = {}  # by signature and system
    for system in systems:
        for run in system.runs:
            for row in run.scores:
                pairs_of.setdefault((row.metric, row.signature), {}).setdefault(system.label, {})[row.pair] = None
    counts = {system.label: len(system.runs[0].record.pairs) for system in systems}
    rows = []
    for (metric, signature), by_system in sorted(pairs_of.items()):
        systems_of: dict[str, list[str]] = {}
        for label, pairs in by_system.items():
            systems_of.setdefault("all pairs" if len(pairs) == counts[label] else ", ".join(pairs), []).append(label)
        shared = len(systems_of) == 1 and len(by_system) == len(systems)
        names = [pairs if shared else f"{pairs} of {', '.join(labels)}" for pairs, labels in systems_of.items()]
        title = METRICS[metric].title if metric in METRICS else metric
        rows.append((title, signature, "; ".join(names)))
    return rows
