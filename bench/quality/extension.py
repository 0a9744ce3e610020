"""The gain and the cost of two languages that are added to a model: `python -m bench.quality.extension [RUNS]`.

RUNS is the directory of the four finished runs of recipes/finetune/freesoft38_*, which docs/fine-tuning.md trains.

Every system has a row for each new pair that it translates, and one for the mean over the other pairs. It has the
difference from the extended model, with an interval of the paired bootstrap over sentences; of the mean, resamples in
which all pairs share their sentences.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.output import ROOT, Row, aligned, number, results_file, write_csv
from eval.records.results import RunResults, group_seeds, load_results
from eval.records.scores import BASELINE, SYSTEM
from eval.score.paired_systems import PairedScores, joint_difference, pair_by_metric
from eval.score.significance import Resampled, percentile_interval

BEFORE, EXTENDED, FROM_START, NEW_ALONE = RUNS = tuple(
    f"finetune_freesoft38_{recipe}" for recipe in ("known", "extended", "from_start", "bilingual")
)
# systems of the table: the run, and which of its models
SYSTEMS = {
    "before": (BEFORE, SYSTEM),
    "extended": (EXTENDED, SYSTEM),
    "from start": (FROM_START, SYSTEM),
    "new pairs": (NEW_ALONE, SYSTEM),
    "bilingual": (NEW_ALONE, BASELINE),
}
METRICS = ("bleu", "chrf++")
OTHERS = "others"  # the mean over the pairs that the model had before
COLUMNS = (
    *("text", "pairs", "system", "target_tokens", "device"),
    *(
        f"{metric}{column}"
        for metric in METRICS
        for column in ("", "_low", "_high", "_delta", "_delta_low", "_delta_high")
    ),
    "run_commit",
)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.quality.extension", description="The table of two languages added to a model."
    )
    parser.add_argument("runs", type=Path, nargs="?", default=ROOT / "runs", help="directory of the four finished runs")
    parser.add_argument("--out", type=Path, help="CSV file, or a folder; default bench/results")
    options = parser.parse_args()
    try:
        rows = compare(options.runs)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    out = results_file("extension", rows[0]["device"], options.out)
    write_csv(rows, COLUMNS, out)
    print(f"{table(rows)}\n\nwritten to {out}")
    return 0


def compare(directory: Path) -> list[dict[str, Any]]:
    """Return a row for each text and each system that translates it.

    directory: it has the four runs, by their recipes' names.
    Raises ValueError for a run that is missing, or has no bilingual models though it should.
    """
    runs = load_results([(name, directory / name) for name in RUNS])
    run_of = {run.label: run for run in runs}
    if BASELINE not in run_of[NEW_ALONE].record.systems:
        raise ValueError(f"{NEW_ALONE} has no bilingual models; train it as docs/fine-tuning.md says")
    new, old = list(run_of[NEW_ALONE].record.pairs), list(run_of[BEFORE].record.pairs)
    paired = pair_by_metric(group_seeds(runs), [*new, *old])
    rows = []
    for text, pairs in (*((pair, [pair]) for pair in new), (OTHERS, old)):
        for system, (label, model) in SYSTEMS.items():
            run = run_of[label]
            if set(pairs) <= set(run.record.pairs):
                values = {
                    "text": text,
                    "pairs": len(pairs),
                    "system": system,
                    "target_tokens": _tokens(run, model, text),
                }
                values |= {"device": run.record.environment.get("cpu", ""), "run_commit": run.record.commit[:10]}
                for metric in METRICS:
                    values |= _scores(paired[metric], pairs, system, metric)
                rows.append(values)
    return rows


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table for a terminal."""
    lines = [["text", "system", "BLEU", "95 %", "chrF++", "BLEU to extended", "95 %"]]
    for row in rows:
        interval = f"{number(row['bleu_low'], 1)} to {number(row['bleu_high'], 1)}"
        difference, of_difference = "", ""
        if row["bleu_delta"] is not None:
            difference = f"{row['bleu_delta']:+.1f}"
            of_difference = f"{row['bleu_delta_low']:+.1f} to {row['bleu_delta_high']:+.1f}"
        scores = [number(row["bleu"], 1), interval, number(row["chrf++"], 1)]
        lines.append([str(row["text"]), str(row["system"]), *scores, difference, of_difference])
    return aligned(lines, left=["text", "system"])


def _scores(
    paired: Mapping[str, Mapping[str, PairedScores]], pairs: Sequence[str], system: str, metric: str
) -> dict[str, float | None]:
    """Return the mean score over pairs, and its difference from the extended model; intervals are of joint resamples.

    paired: resampled scores by pair and run.
    """
    scores = [_of(paired[pair], system) for pair in pairs]
    extended = [_of(paired[pair], "extended") for pair in pairs]
    low, high = percentile_interval(np.mean([_joint(score) for score in scores], axis=0))
    values: dict[str, float | None] = dict.fromkeys(f"{metric}_delta{bound}" for bound in ("", "_low", "_high"))
    values |= {metric: _mean(scores), f"{metric}_low": low, f"{metric}_high": high}
    if system != "extended":
        differences = [joint_difference(one, other) for one, other in zip(scores, extended, strict=True)]
        low, high = percentile_interval(np.mean(differences, axis=0))
        values[f"{metric}_delta"] = _mean(scores) - _mean(extended)
        values |= {f"{metric}_delta_low": low, f"{metric}_delta_high": high}
    return values


def _of(paired: Mapping[str, PairedScores], system: str) -> Resampled:
    run, model = SYSTEMS[system]
    score = paired[run].system if model == SYSTEM else paired[run].baseline
    assert score is not None  # `compare` looked for them
    return score


def _joint(score: Resampled) -> NDArray[np.float64]:
    assert score.joint is not None  # `pair_by_metric` draws them
    return score.joint


def _mean(scores: Sequence[Resampled]) -> float:
    return sum(score.score for score in scores) / len(scores)


def _tokens(run: RunResults, model: str, text: str) -> int:
    """Return the target tokens that the model of a text was trained on."""
    ledgers = run.record.systems[model]
    return next(int(ledger["tokens"]) for ledger in ledgers if ledger["pair"] in (None, text))


if __name__ == "__main__":
    sys.exit(main())
