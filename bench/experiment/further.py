"""Scores of a further test set, such as NTREX, as an archive keeps them: those of the set and of every joint resample.

Its translations would take megabytes. The joint resamples of two systems draw the same sentences, so that a difference
of their means over languages has its interval without the text.
"""

import io
from pathlib import Path

import numpy as np

from eval.records.results import System, load_results
from eval.records.run_record import TEST_SETS
from eval.score.paired_systems import pair_systems, shared_sentences

FILES = ("run.json", "scores.csv", "macro.csv", "faults.csv")
RESAMPLES = "resamples.npy"


def kept_files(run: Path) -> dict[str, bytes]:
    """Return the files of each further test set of a run by path, with `resamples.npy`."""
    files: dict[str, bytes] = {}
    for directory in sorted((run / TEST_SETS).glob("*")):
        place = f"{TEST_SETS}/{directory.name}"
        files |= {f"{place}/{name}": (directory / name).read_bytes() for name in FILES}
        files[f"{place}/{RESAMPLES}"] = _resamples(directory)
    return files


def _resamples(directory: Path) -> bytes:
    """Return the multilingual model's scores, [metrics, pairs, resamples] in the order of run.json, as a numpy file."""
    (results,) = load_results([("", directory)])
    system, pairs = System(label=results.label, runs=(results,)), results.record.pairs
    shared = shared_sentences([system], pairs)
    metrics = results.record.config["score"]["metrics"]
    paired = [[pair_systems([system], pair, shared, metric)[system.label] for pair in pairs] for metric in metrics]
    buffer = io.BytesIO()
    np.save(buffer, np.array([[scores.system.joint for scores in row] for row in paired], np.float32))
    return buffer.getvalue()
