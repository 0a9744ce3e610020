"""The stage `score`, which reads a run's translations and writes scores.csv, significance.csv and macro.csv.

It counts the faults of the translations in faults.csv, and lists them in faulty_lines.csv. It writes forgetting.csv
too if the run has translations by the model that its training started from.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from eval.records.faults import FaultRow, FaultyLine, save_faults
from eval.records.run_record import RunRecord, Translation, load_run, load_translations
from eval.records.scores import (
    BASELINE,
    FORGETTING,
    INITIAL,
    METRICS,
    SYSTEM,
    ScoreRow,
    SignificanceRow,
    save_scores,
    save_significance,
)
from eval.score.before_after import changes, save_changes
from eval.score.by_command import check_command, command_signature, scores_by_command
from eval.score.faults import pair_faults
from eval.score.macro import macro_means, save_macro
from eval.score.metrics import caution
from eval.score.significance import NUM_RESAMPLES, SEED, Resampled, compare, resample, resample_means

logger = logging.getLogger(__name__)


def write_scores(
    run_dir: Path,
    *,
    metrics: Sequence[str] = ("bleu", "chrf++"),
    commands: Mapping[str, str] | None = None,
    n_resamples: int = NUM_RESAMPLES,
    seed: int = SEED,
) -> None:
    """Score every system and pair of run.json from translations/ and compare `moe` with `bilingual`.

    commands: commands that compute those of the metrics that are not sacreBLEU's.
    Raises ValueError for a command that fails, missing translations, an empty test set, or systems with different
        references.
    """
    record = load_run(run_dir)
    scores: list[ScoreRow] = []
    comparisons: list[SignificanceRow] = []
    fault_rows: list[FaultRow] = []
    faulty_lines: list[FaultyLine] = []
    not_sacrebleu = [name for name in metrics if METRICS[name].by_command]
    by_command = _scores_by_command(run_dir, record, not_sacrebleu, commands)
    signatures = {metric: command_signature((commands or {})[metric]) for metric in not_sacrebleu}
    for pair in record.pairs_by_resource:
        systems = record.systems_of(pair) or (SYSTEM, BASELINE)
        translations = {system: load_translations(run_dir, system, pair) for system in systems}
        _check_same_references(pair, translations)
        hypotheses = [[line.hypothesis for line in lines] for lines in translations.values()]
        references = [line.reference for line in translations[systems[0]]]
        target = record.languages[pair][1]
        for metric in metrics:
            if METRICS[metric].by_command:
                sentence_scores = [by_command[metric, system, pair] for system in translations]
                results = resample_means(sentence_scores, signatures[metric], n_resamples=n_resamples, seed=seed)
            else:
                results = resample(hypotheses, references, target, metric, n_resamples=n_resamples, seed=seed)
            resampled = dict(zip(translations, results, strict=True))
            scores += [_score_row(record, pair, system, metric, result) for system, result in resampled.items()]
            if SYSTEM in resampled and BASELINE in resampled:
                comparisons.append(_significance_row(pair, metric, resampled[SYSTEM], resampled[BASELINE]))
        rows_of_pair, lines_of_pair = pair_faults(pair, target, translations)
        fault_rows += rows_of_pair
        faulty_lines += lines_of_pair
        logger.info("scored %s: %d sentences, %s", pair, scores[-1].n_test, ", ".join(systems))
    cautions = {caution(metric, tgt): None for metric in metrics for _, tgt in record.languages.values()}
    for text in filter(None, cautions):
        logger.warning("warning: %s", text)
    save_scores(run_dir / "scores.csv", scores)
    save_significance(run_dir / "significance.csv", comparisons)
    save_macro(run_dir / "macro.csv", macro_means(scores))
    save_faults(run_dir, fault_rows, faulty_lines)
    before, after = (run_dir / "translations" / system for system in (INITIAL, SYSTEM))
    if old_pairs := [pair for pair in record.pairs_by_resource if (before / f"{pair}.jsonl").is_file()]:
        targets = {pair: record.languages[pair][1] for pair in old_pairs}
        compared = [name for name in metrics if not METRICS[name].by_command]
        rows = changes(before, after, targets, metrics=compared, n_resamples=n_resamples, seed=seed)
        save_changes(run_dir / FORGETTING, rows)


def _scores_by_command(
    run_dir: Path, record: RunRecord, metrics: Sequence[str], commands: Mapping[str, str] | None
) -> dict[tuple[str, str, str], list[float]]:
    """Return the scores of sentences by metric, system and pair. Each command runs once, because it loads a model."""
    places, sentences = [], []
    for pair in record.pairs_by_resource if metrics else ():
        for system in record.systems_of(pair) or (SYSTEM, BASELINE):
            lines = load_translations(run_dir, system, pair)
            places.append((system, pair, len(lines)))
            sentences += [(line.source, line.hypothesis, line.reference) for line in lines]
    scores = {}
    for metric in metrics:
        command = (commands or {}).get(metric, "")
        check_command(f"score.commands.{metric}", command)
        numbers = iter(scores_by_command(f"score.commands.{metric}", command, sentences))
        for system, pair, count in places:
            scores[metric, system, pair] = [METRICS[metric].scale * next(numbers) for _ in range(count)]
    return scores


def _check_same_references(pair: str, translations: dict[str, list[Translation]]) -> None:
    first, *later_systems = translations
    expected = [line.reference for line in translations[first]]
    if not expected:
        raise ValueError(f"translations/{first}/{pair}.jsonl is empty; a pair needs a test set to be scored")
    for system in later_systems:
        references = [line.reference for line in translations[system]]
        if len(references) != len(expected):
            raise ValueError(
                f"pair={pair!r}: {first} has {len(expected)} references, {system} has {len(references)}; "
                "translate the same test set with both"
            )
        differing = [n for n, (a, b) in enumerate(zip(expected, references, strict=True), start=1) if a != b]
        if differing:
            raise ValueError(
                f"pair={pair!r}: {first} and {system} have different references from line {differing[0]} on; "
                "translate the same test set with both"
            )


def _score_row(record: RunRecord, pair: str, system: str, metric: str, result: Resampled) -> ScoreRow:
    return ScoreRow(
        pair=pair,
        system=system,
        train_pairs=record.train_pairs[pair],
        metric=metric,
        score=result.score,
        ci_low=result.ci_low,
        ci_high=result.ci_high,
        n_test=result.n,
        signature=result.signature,
    )


def _significance_row(pair: str, metric: str, system: Resampled, baseline: Resampled) -> SignificanceRow:
    comparison = compare(system, baseline)
    return SignificanceRow(
        pair=pair,
        metric=metric,
        delta=comparison.delta,
        ci_low=comparison.ci_low,
        ci_high=comparison.ci_high,
        p_value=comparison.p_value,
        n_resamples=comparison.n_resamples,
        seed=comparison.seed,
    )
