"""Losses on short and noisy input with and without augmentation: `python -m bench.quality.augmentation`.

A recipe is trained with and without `batch.augment`, on several seeds, and translates the challenge set of its own test
sets. The table has, for each kind of line, the chrF++ of the changed lines and what they lose against the same lines
unchanged, mean over pairs and seeds. A small loss alone is no proof, because a model that is worse on unchanged lines
has less to lose. Intervals are of a bootstrap of test lines and seeds together. What is trained is not trained again,
so an interrupted command continues.
"""

import argparse
import hashlib
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.output import Row, aligned, device_name, number, results_file, write_csv
from eval.records.challenge import KINDS, MIN_LINES, PLAIN
from eval.records.run_record import TEST_SETS, load_run, load_translations
from eval.records.scores import SYSTEM
from eval.score.challenge import METRIC, score_kind
from eval.score.seeds import seed_shares
from eval.score.significance import NUM_RESAMPLES, percentile_interval, resample
from pipeline.commands.train import train
from pipeline.config import ROOT, RunConfig, load_config
from pipeline.score_config import CHALLENGE

SHARES = (
    *("upper=0.05", "title=0.03", "full_stop=0.05", "typos=0.1", "word=0.01", "number=0.005", "url=0.005"),
    *("emoji=0.005", "merged=0.1", "subwords=0.2"),
)
QUICK = (  # a tiny model, for a few steps
    *("model.dim=64", "model.ffn_dim=128", "model.encoder_layers=1", "model.decoder_layers=1"),
    *(
        "model.heads=4",
        "model.moe.num_experts=0",
        "train.max_steps=20",
        "train.validate_every=20",
        "decode.beam=1",
        "decode.max_length_ratio=1",
    ),
    *("decode.max_length_extra=5", "score.resamples=100"),
)
WITHOUT, WITH = WAYS = ("without", "with")
COLUMNS = (
    *("recipe", "device", "augment", "seeds", "kind", "pairs", "lines", "plain_without", "plain_with"),
    *("loss_without", "loss_with", "gain", "ci_low", "ci_high"),
    *("changed_without", "changed_with", "changed_gain", "changed_low", "changed_high"),
)

Samples = NDArray[np.float64]  # the value itself, then its value in each resample


class PairScores(NamedTuple):
    """The score of a pair's plain lines, what is lost on the changed ones, and the number of lines."""

    plain: Samples
    loss: Samples
    lines: int


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    options = parse()
    try:
        configs = configurations(options)
        for config in (config for of_way in configs.values() for config in of_way):
            train(config)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    runs = {way: [ROOT / config.runtime.runs / config.name for config in configs[way]] for way in WAYS}
    device = device_name(options.device)
    about = {
        "recipe": options.recipe,
        "device": device,
        "augment": " ".join(options.augment),
        "seeds": " ".join(map(str, options.seeds)),
    }
    rows = [{**about, **row} for row in compare(runs, resamples=options.resamples)]
    out = results_file("augmentation", device, options.out)
    write_csv(rows, COLUMNS, out)
    print(f"\nchrF++ of plain and of changed lines, {options.recipe} on {device}\n\n{table(rows)}\n\nwritten to {out}")
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.quality.augmentation", description="Losses with and without augmentation."
    )
    parser.add_argument("--recipe", default="demo")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--augment", nargs="+", default=SHARES, metavar="KIND=SHARE", help="shares of batch.augment")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--resamples", type=int, default=NUM_RESAMPLES)
    parser.add_argument("--quick", action="store_true", help="a tiny model for a few steps: does it run?")
    parser.add_argument("--out", type=Path, help="CSV file, or a folder; default bench/results")
    parser.add_argument(
        "settings", nargs="*", help="further settings of all trainings, such as train.max_tokens=5000000"
    )
    options = parser.parse_intermixed_args()
    if len({*options.seeds}) < len(options.seeds):
        parser.error(f"--seeds={' '.join(map(str, options.seeds))} names a seed twice")
    if len(options.seeds) < 2:
        parser.error(f"--seeds={options.seeds[0]}: an interval that counts seeds needs two of them")
    if wrong := [word for word in options.augment if "." in word.partition("=")[0]]:
        parser.error(f"--augment: {wrong[0]} is no share; write settings before --augment")
    if options.resamples < 100:
        parser.error(f"--resamples={options.resamples}: an interval needs at least 100")
    return options


def configurations(options: argparse.Namespace) -> dict[str, list[RunConfig]]:
    """Return the configuration of each training, by way.

    Names end in a hash of the options, because trainings of other shares or settings are other runs.
    Raises ValueError for a share or a setting that is wrong, and for a recipe that has shares of its own.
    """
    shares = {WITHOUT: [], WITH: [f"+batch.augment.{share}" for share in options.augment]}
    common = [
        *(f"recipes={options.recipe}", "baselines=none", f"runtime.device={options.device}"),
        *(f"score.test_sets=[own,{CHALLENGE}]", *(QUICK if options.quick else ()), *options.settings),
    ]
    own = load_config(common).batch.augment
    if own:
        raise ValueError(
            f"--recipe={options.recipe}, or a further setting, has batch.augment={own}, so that no training is without "
            "it; take it out and give --augment its shares"
        )
    digest = hashlib.sha256(json.dumps([common, shares[WITH]]).encode()).hexdigest()[:6]
    return {
        way: [
            load_config(
                [*common, f"name=augment-{options.recipe}-{way}-{seed}-{digest}", f"train.seed={seed}", *shares[way]]
            )
            for seed in options.seeds
        ]
        for way in WAYS
    }


def compare(runs: Mapping[str, Sequence[Path]], *, resamples: int) -> list[dict[str, Any]]:
    """Return a row for the plain lines and for each kind: means over the pairs that have it, and over the seeds.

    runs: directories of the runs of each way, one for each seed, which have the same challenge set.
    gain: loss without minus loss with augmentation, of plain lines the score with minus the score without.
    changed_gain: score of the changed lines with minus without augmentation.
    Both intervals are of resampled lines and seeds; they are left out where a pair has fewer than MIN_LINES lines.
    """
    rows: list[dict[str, Any]] = []
    for kind in (PLAIN, *KINDS):
        scores = {way: [_scores(run, kind, resamples) for run in runs[way]] for way in WAYS}
        if not scores[WITH][0]:
            continue
        plain, losses = (
            {way: _mean_over_seeds([_mean(values_of(of_run)) for of_run in scores[way]]) for way in WAYS}
            for values_of in (_plain_scores, _losses)
        )
        few = min(of_pair.lines for of_pair in scores[WITH][0]) < MIN_LINES
        values: dict[str, Any] = {"kind": kind, "pairs": len(scores[WITH][0])}
        values["lines"] = sum(of_pair.lines for of_pair in scores[WITH][0])
        for way in WAYS:
            values |= {f"plain_{way}": float(plain[way][0])}
            values |= {f"loss_{way}": None if kind == PLAIN else float(losses[way][0])}
        gain = plain[WITH] - plain[WITHOUT] if kind == PLAIN else losses[WITHOUT] - losses[WITH]
        values |= _with_interval(gain, ("gain", "ci_low", "ci_high"), few)
        if kind != PLAIN:
            changed = {way: plain[way] - losses[way] for way in WAYS}
            values |= {f"changed_{way}": float(changed[way][0]) for way in WAYS}
            names = ("changed_gain", "changed_low", "changed_high")
            values |= _with_interval(changed[WITH] - changed[WITHOUT], names, few)
        rows.append(values)
    return rows


def _with_interval(samples: Samples, names: tuple[str, str, str], few: bool) -> dict[str, float | None]:
    """Return a value and its bounds by name. few: lines, so that the bounds are left out."""
    low, high = (None, None) if few else percentile_interval(samples[1:])
    return dict(zip(names, (float(samples[0]), low, high), strict=True))


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table for a terminal."""
    lines = [["kind", "lines", "chrF++, without", "with", "difference", "95 % of it", "loss, without", "with"]]
    for row in rows:
        plain = row["kind"] == PLAIN
        score, low, high = ("plain", "ci_low", "ci_high") if plain else ("changed", "changed_low", "changed_high")
        difference = number(row["gain" if plain else "changed_gain"], 2)
        interval = f"{row[low]:.2f} to {row[high]:.2f}" if row[low] is not None else ""
        scores = [number(row[f"{score}_{way}"], 2) for way in WAYS]
        losses = [number(row[f"loss_{way}"], 2) for way in WAYS]
        title = PLAIN if plain else KINDS[row["kind"]].title
        lines.append([title, number(row["lines"]), *scores, difference, interval, *losses])
    return aligned(lines, left=["kind"])


def _scores(run: Path, kind: str, resamples: int) -> list[PairScores]:
    """Return the scores of each pair that has lines of a kind."""
    directory = run / TEST_SETS / CHALLENGE
    record = load_run(directory)
    scores: list[PairScores] = []
    for pair in record.pairs:
        lines, target = load_translations(directory, SYSTEM, pair), record.languages[pair][1]
        if kind == PLAIN:
            plain_lines = [line for line in lines if line.kind == PLAIN]
            texts = [[line.hypothesis for line in plain_lines]], [line.reference for line in plain_lines]
            (plain,) = resample(*texts, target, METRIC, n_resamples=resamples)
            changed = plain
        elif of_kind := score_kind(lines, kind, target, n_resamples=resamples):
            plain, changed = of_kind
        else:
            continue
        before, after = (np.array([scored.score, *scored.resampled]) for scored in (plain, changed))
        scores.append(PairScores(plain=before, loss=before - after, lines=plain.n))
    return scores


def _plain_scores(scores: Sequence[PairScores]) -> list[Samples]:
    return [of_pair.plain for of_pair in scores]


def _losses(scores: Sequence[PairScores]) -> list[Samples]:
    return [of_pair.loss for of_pair in scores]


def _mean(samples: Sequence[Samples]) -> Samples:
    """Return the mean over pairs."""
    mean: Samples = np.stack(samples).mean(axis=0)
    return mean


def _mean_over_seeds(samples: Sequence[Samples]) -> Samples:
    """Return the mean over seeds, and in each resample the mean over the seeds that it draws, which both ways share."""
    by_seed = np.stack(samples)
    shares = seed_shares(len(samples), by_seed.shape[1] - 1, "seeds")
    drawn = np.einsum("rs,sr->r", shares, by_seed[:, 1:])
    return np.concatenate(([by_seed[:, 0].mean()], drawn))


if __name__ == "__main__":
    sys.exit(main())
