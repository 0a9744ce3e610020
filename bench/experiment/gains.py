"""Every pair that has a bilingual model: its score, and what multilingual systems gain over it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.experiment.contrasts import OWN, load_systems
from bench.output import Row, aligned, number
from eval.number_format import decimal, signed
from eval.records.ending import MARK, unfinished_systems
from eval.records.scores import BASELINE
from eval.score.paired_systems import pair_by_metric
from eval.score.significance import percentile_interval

METRIC = "bleu"
COLUMNS = (
    *("test_set", "pair", "train_pairs", "num_sentences", "metric", "bilingual", "improving"),
    *("system", "num_seeds", "score", "gain", "ci_low", "ci_high"),
)


def measure(directories: Sequence[Path]) -> list[dict[str, Any]]:
    """Return a row for each pair and system, the pairs with most training rows first.

    Scores are means of the seeds; intervals of 95 % count test sentences and seeds. `improving` is 1 if the budget
    ended the bilingual model while it still improved, so that it could be better.

    directories: of finished runs. Those that differ in the seed alone are one system.
    Raises ValueError without bilingual models, and as `load_results`.
    """
    systems = load_systems(directories)
    record = systems[0].runs[0].record
    compared = {ledger["pair"] for ledger in record.systems.get(BASELINE, [])}
    if not compared:
        raise ValueError(f"{systems[0].runs[0].directory} has no bilingual models to compare with")
    pairs = sorted((pair for pair in record.pairs if pair in compared), key=lambda pair: -record.train_pairs[pair])
    paired = pair_by_metric(systems, pairs)[METRIC]
    rows: list[dict[str, Any]] = []
    for pair in pairs:
        improving = int(BASELINE in unfinished_systems(record.systems, pair))
        for system in systems:
            scores = paired[pair][system.label]
            gain, baseline = scores.joint_gain, scores.baseline
            assert gain is not None  # `pair_by_metric` draws gains for pairs with both
            assert baseline is not None
            low, high = percentile_interval(gain)
            about = {"test_set": OWN, "pair": pair, "train_pairs": record.train_pairs[pair], "metric": METRIC}
            bilingual = {"num_sentences": baseline.n, "bilingual": baseline.score, "improving": improving}
            multilingual = {"score": scores.system.score, "gain": scores.system.score - baseline.score}
            seeds = {"system": system.label, "num_seeds": len(system.runs)}
            rows.append({**about, **bilingual, **seeds, **multilingual, "ci_low": low, "ci_high": high})
    return rows


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table for a terminal."""
    lines = [["pair", "rows", "sentences", "bilingual", "system", "BLEU", "gain", "95 %"]]
    for row in rows:
        bilingual = decimal(row["bilingual"], 1) + MARK * row["improving"]
        counts = [number(row["train_pairs"]), number(row["num_sentences"]), bilingual]
        interval = f"[{signed(row['ci_low'], 1)}, {signed(row['ci_high'], 1)}]"
        scores = [decimal(row["score"], 1), signed(row["gain"], 1), interval]
        lines.append([row["pair"], *counts, row["system"], *scores])
    return aligned(lines, left=["pair", "system"])
