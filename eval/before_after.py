"""What a change of a model does to its translations: scores of the same test sets before and after, compared."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from eval.number_format import signed
from eval.run_record import read_translations
from eval.scores import write_csv
from eval.significance import NUM_RESAMPLES, SEED, compare, resample

METRICS = ("bleu", "chrf++")


@dataclass(frozen=True, kw_only=True)
class Change:
    """One metric on one pair's test set, 0 to 100, with 95 % intervals; delta: after minus before, paired bootstrap."""

    pair: str
    metric: str
    before: float
    before_low: float
    before_high: float
    after: float
    after_low: float
    after_high: float
    delta: float
    delta_low: float
    delta_high: float
    p_value: float
    n_test: int
    n_resamples: int
    seed: int
    signature: str


def changes(
    before: Path, after: Path, targets: Mapping[str, str], *, n_resamples: int = NUM_RESAMPLES, seed: int = SEED
) -> list[Change]:
    """Scores of `<pair>.jsonl` in two directories. targets: language code of the target by pair."""
    found = []
    for pair, tgt in targets.items():
        files = [read_translations(directory / f"{pair}.jsonl") for directory in (before, after)]
        references = [[line.reference for line in lines] for lines in files]
        if references[0] != references[1]:
            raise ValueError(f"pair={pair!r}: {before} and {after} are of other references; translate one test set")
        hypotheses = [[line.hypothesis for line in lines] for lines in files]
        for metric in METRICS:
            old, new = resample(hypotheses, references[0], tgt, metric, n_resamples=n_resamples, seed=seed)
            difference = compare(new, old)
            found.append(
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
    return found


def save_changes(path: Path, rows: Sequence[Change], constants: Mapping[str, int]) -> None:
    """One line a row, four decimals, six for the p-value. constants: further columns, the same in every line."""
    cells = [
        [
            *(
                f"{value:.{6 if name == 'p_value' else 4}f}" if isinstance(value, float) else str(value)
                for name, value in asdict(row).items()
            ),
            *map(str, constants.values()),
        ]
        for row in rows
    ]
    write_csv(path, [*(field.name for field in fields(Change)), *constants], cells)


def text_table(rows: Sequence[Change]) -> str:
    """For a terminal: half the width of an interval stands behind ±."""
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
    widths = [max(len(line[column]) for line in [header, *lines]) for column in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in [header, *lines]
    )
