"""Training losses of a run, in parts of equal length.

They are those of the weights themselves, where validations are of their average (`train.ema`), which lags behind. While
a text is read for the first time, they are losses on new text, as those of a development set are.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from eval.records.run_record import LossPoint, load_losses

PARTS = 40  # of a training


def training_curve(run: Path) -> list[LossPoint]:
    """Return PARTS points, each the mean of the records of as many steps. Raises ValueError for too few records.

    run: directory of a finished run.
    """
    records = load_losses(run, "train")
    length = len(records) // PARTS
    if not length:
        raise ValueError(f"{run}: {len(records)} records of training are too few; a curve needs {PARTS}")
    records = records[-PARTS * length :]
    return [_mean(records[start : start + length]) for start in range(0, len(records), length)]


def _mean(records: Sequence[LossPoint]) -> LossPoint:
    tokens = round(fmean(record.target_tokens for record in records))
    return replace(records[-1], target_tokens=tokens, cross_entropy=fmean(record.cross_entropy for record in records))
