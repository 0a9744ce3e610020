"""Scores of systems on the same bootstrap resamples of a pair's test set.

The score of a system is the mean over its seeds. Systems of the same seeds draw them together, because a seed draws the
same batches for all of them: what it does to both is no difference between them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eval.records.results import RunResults, System
from eval.records.run_record import load_translations
from eval.records.scores import BASELINE, SACREBLEU_METRICS, SYSTEM
from eval.score.seeds import seed_shares
from eval.score.shared_sentences import SharedSentences
from eval.score.significance import NUM_RESAMPLES, SEED, Comparison, Resampled, compare, percentile_interval, resample

Lines = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TestSet:
    """The sources and references of a pair, one line a sentence."""

    __test__ = False  # pytest would take the class for a test case because of its name
    sources: Lines
    references: Lines


@dataclass(frozen=True, kw_only=True)
class PairedScores:
    """The score of a system and of its baselines on one test set. baseline: None without baselines."""

    test_set: TestSet
    system: Resampled
    baseline: Resampled | None

    @property
    def gain(self) -> Comparison | None:
        """Comparison of the system with its baselines."""
        return None if self.baseline is None else compare(self.system, self.baseline)

    @property
    def joint_gain(self) -> NDArray[np.float64] | None:
        """Score of the system minus that of its baselines in every joint resample."""
        return None if self.baseline is None else joint_difference(self.system, self.baseline)


@dataclass(frozen=True, kw_only=True)
class _Translated:
    test_set: TestSet
    seeds: str
    system: list[Lines]  # of every seed, in the order of their numbers
    baseline: list[Lines]


def joint_difference(system: Resampled, reference: Resampled) -> NDArray[np.float64]:
    """Return one score minus another in every joint resample. Raises ValueError if these were not drawn."""
    if system.joint is None or reference.joint is None:
        raise ValueError("joint resamples were not drawn; give `resample` the numbers of the sentences")
    return system.joint - reference.joint


def joint_differences(
    pairs: Sequence[str], paired: Mapping[str, Mapping[str, PairedScores]], system: str, reference: str
) -> dict[str, NDArray[np.float64]]:
    """Return the system's score minus the reference's in every joint resample, by pair, of pairs that have both scores.

    paired: resampled scores by pair and label, of one metric.
    """
    return {
        pair: joint_difference(paired[pair][system].system, paired[pair][reference].system)
        for pair in pairs
        if {system, reference} <= paired[pair].keys()
    }


def pair_by_metric(systems: Sequence[System], pairs: Sequence[str]) -> dict[str, dict[str, dict[str, PairedScores]]]:
    """Return the resampled scores of systems by metric, pair and label, with joint resamples of all pairs.

    Another metric than BLEU has those of the systems that were scored by it. It is left out if that is one run alone,
    whose files have its intervals, and if it is computed by a command.
    """
    shared = shared_sentences(systems, pairs)
    paired = {"bleu": {pair: pair_systems(systems, pair, shared) for pair in pairs}}
    for metric in SACREBLEU_METRICS[1:]:
        scored = [s for s in systems if all(metric in {row.metric for row in run.scores} for run in s.runs)]
        if sum(len(system.runs) for system in scored) > 1:
            paired[metric] = {pair: pair_systems(scored, pair, shared, metric) for pair in pairs}
    return paired


def shared_sentences(systems: Sequence[System], pairs: Sequence[str]) -> SharedSentences:
    """Return the index that tells which rows of all pairs' test sets are one sentence."""
    shared = SharedSentences()
    for pair in pairs:
        for system in systems:
            if pair in system.runs[0].record.pairs:
                test_set = _translations(system, pair).test_set
                shared.add(_languages(system, pair), test_set.sources, test_set.references)
    return shared


def pair_systems(
    systems: Sequence[System], pair: str, shared: SharedSentences | None, metric: str = "bleu"
) -> dict[str, PairedScores]:
    """Return a score by label of the systems that translate the pair. Systems with one test set share their resamples.

    Equal translations are scored once.

    shared: the sentences of all pairs, for joint resamples; None draws none.
    Raises ValueError if the seeds of one system have different test sets.
    """
    translated = {s.label: _translations(s, pair) for s in systems if pair in s.runs[0].record.pairs}
    scores: dict[str, PairedScores] = {}
    for test_set in dict.fromkeys(lines.test_set for lines in translated.values()):
        group = {label: lines for label, lines in translated.items() if lines.test_set == test_set}
        first = next(system for system in systems if system.label in group)
        distinct = list(dict.fromkeys(lines for item in group.values() for lines in item.system + item.baseline))
        n_resamples, seed = _draws(first.runs[0], pair)
        languages = _languages(first, pair)
        results = resample(
            distinct,
            test_set.references,
            languages[1],
            metric,
            n_resamples=n_resamples,
            seed=seed,
            sentences=shared.numbers(languages, test_set.sources, test_set.references) if shared else (),
        )
        result_of = dict(zip(distinct, results, strict=True))
        for label, item in group.items():
            scores[label] = PairedScores(
                test_set=test_set,
                system=_mean_over_seeds([result_of[lines] for lines in item.system], item.seeds),
                baseline=(
                    _mean_over_seeds([result_of[lines] for lines in item.baseline], f"{label} {BASELINE} {pair}")
                    if item.baseline
                    else None
                ),
            )
    return scores


def _languages(system: System, pair: str) -> tuple[str, str]:
    return system.runs[0].record.languages[pair]


def _translations(system: System, pair: str) -> _Translated:
    test_sets: list[TestSet] = []
    hypotheses: dict[str, list[Lines]] = {SYSTEM: [], BASELINE: []}
    runs = sorted(system.runs, key=lambda run: str(run.seed))
    names_of_runs = [{row.system for row in run.scores if row.pair == pair} for run in runs]
    for name in hypotheses:
        if not all(name in names for names in names_of_runs):
            continue
        for run in runs:
            lines = load_translations(run.directory, name, pair)
            hypotheses[name].append(tuple(line.hypothesis for line in lines))
            sources = tuple(line.source for line in lines)
            test_sets.append(TestSet(sources=sources, references=tuple(line.reference for line in lines)))
    if len(set(test_sets)) > 1:
        raise ValueError(
            f"pair={pair!r}: the translations of {', '.join(run.label for run in system.runs)} are of different test "
            "sets, yet count as one system; translate one test set with all"
        )
    if not hypotheses[SYSTEM]:
        raise _no_score(next(run for run, names in zip(runs, names_of_runs, strict=True) if SYSTEM not in names), pair)
    seeds = " ".join(["seeds", *(str(run.seed) for run in runs)])
    return _Translated(test_set=test_sets[0], seeds=seeds, system=hypotheses[SYSTEM], baseline=hypotheses[BASELINE])


def _draws(run: RunResults, pair: str) -> tuple[int, int]:
    """Return the number of resamples and the seed of the run's own interval, from its signature.

    Raises ValueError without a BLEU score.
    """
    rows = [row for row in run.scores if (row.pair, row.system, row.metric) == (pair, SYSTEM, "bleu")]
    if not rows:
        raise _no_score(run, pair)
    parts: Mapping[str, str] = dict(part.split(":", 1) for part in rows[0].signature.split("|"))
    return int(parts.get("bs", NUM_RESAMPLES)), int(parts.get("seed", SEED))


def _no_score(run: RunResults, pair: str) -> ValueError:
    file = run.directory / "scores.csv"
    return ValueError(f"{file} has no bleu of {SYSTEM!r} for pair={pair!r}; score the run again")


def _mean_over_seeds(seeds: Sequence[Resampled], draw: str) -> Resampled:
    """Return the mean over the seeds. Its resamples draw seeds as well as sentences.

    draw: names the draw of seeds. One multilingual model translates all pairs, so all pairs of a system have one draw,
        as have systems of the same seeds; the bilingual models of each pair have their own.
    """
    first = seeds[0]
    if len(seeds) == 1:
        return first
    resampled = _weighted([seed.resampled for seed in seeds], draw)
    low, high = percentile_interval(resampled)
    joint = [seed.joint for seed in seeds if seed.joint is not None]
    return Resampled(
        score=sum(seed.score for seed in seeds) / len(seeds),
        ci_low=low,
        ci_high=high,
        signature=first.signature,
        n=first.n,
        seed=first.seed,
        resampled=resampled,
        joint=_weighted(joint, draw) if joint else None,
    )


def _weighted(scores: Sequence[NDArray[np.float64]], draw: str) -> NDArray[np.float64]:
    """Return the mean of the drawn seeds in every resample. scores: those of each seed, [n_resamples]."""
    columns = np.stack(scores, axis=1)
    mean: NDArray[np.float64] = (seed_shares(len(scores), len(columns), draw) * columns).sum(axis=1)
    return mean
