"""Comparison of a model before and after a change, such as pruning, by its scores on the same test sets."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from eval.number_format import signed
from eval.records.run_record import read_translations
from eval.records.scores import Change, field_names, row_cells, write_csv
from eval.score.significance import NUM_RESAMPLES, SEED, compare, resample
from eval.text_table import aligned

METRICS = ("bleu", "chrf++")


def changes(
    before: Path,
    after: Path,
    targets: Mapping[str, str],
    *,
    metrics: Sequence[str] = METRICS,
    n_resamples: int = NUM_RESAMPLES,
    seed: int = SEED,
) -> list[Change]:
    """Score the translations in two directories, `<pair>.jsonl` in each, and compare them.

    before, after: the directories.
    targets: the language code of the target by pair.
    """
    rows = []
    for pair, tgt in targets.items():
        files = [read_translations(directory / f"{pair}.jsonl") for directory in (before, after)]
        references = [[line.reference for line in lines] for lines in files]
        if references[0] != references[1]:
            raise ValueError(f"pair={pair!r}: {before} and {after} are of other references; translate one test set")
        hypotheses = [[line.hypothesis for line in lines] for lines in files]
        for metric in metrics:
            old, new = resample(hypotheses, references[0], tgt, metric, n_resamples=n_resamples, seed=seed)
            difference = compare(new, old)
            rows.append(
                Change(
                    pair=pair,
                    metric=metric,
                    before=old.score,
                    before_low=old.ci_low,
                    before_high=old.ci_high,
                    after=new.score,
                    after_low=new.ci_low,
                    after_high=new.ci_high,
                    delta=difference.delta,
                    delta_low=difference.ci_low,
                    delta_high=difference.ci_high,
                    p_value=difference.p_value,
                    n_test=old.n,
                    n_resamples=n_resamples,
                    seed=seed,
                    signature=old.signature,
                )
            )
    return rows


def save_changes(path: Path, rows: Sequence[Change], constants: Mapping[str, int] | None = None) -> None:
    """Write the rows as CSV, with four decimals, and six for the p-value.

    constants: more columns, with the same value in every line.
    """
    names, constants = field_names(Change), constants or {}
    cells = [[*row_cells(row, names), *map(str, constants.values())] for row in rows]
    write_csv(path, [*names, *constants], cells)


def text_table(rows: Sequence[Change]) -> str:
    """Return the rows as a table for a terminal. The number behind ± is half the width of the interval."""
    header = ["pair", "metric", "before", "after", "difference", "95 % of it", "p", "lines"]
    lines = [
        [
            row.pair,
            row.metric,
            f"{row.before:.2f} ±{(row.before_high - row.before_low) / 2:.2f}",
            f"{row.after:.2f} ±{(row.after_high - row.after_low) / 2:.2f}",
            signed(row.delta, 2),
            f"{signed(row.delta_low, 2)} to {signed(row.delta_high, 2)}",
            f"{row.p_value:.3f}",
            str(row.n_test),
        ]
        for row in rows
    ]
    return aligned([header, *lines], left=None)
