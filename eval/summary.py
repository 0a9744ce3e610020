"""Scores of one run as its headline needs them: one row a pair, and a sentence that can be bad news."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eval.run_record import RunRecord
from eval.scores import SYSTEM, ScoreRow, SignificanceRow


@dataclass(frozen=True, kw_only=True)
class PairSummary:
    """A pair's scores by (system, metric), and its comparison with the baseline by metric."""

    pair: str
    train_pairs: int
    n_test: int
    scores: Mapping[tuple[str, str], ScoreRow]
    gains: Mapping[str, SignificanceRow]

    def score(self, system: str, metric: str) -> float | None:
        """The score, or None where the run has no such system."""
        row = self.scores.get((system, metric))
        return None if row is None else row.score

    def gain(self, metric: str) -> float | None:
        """Gain over the baseline, or None without one."""
        row = self.gains.get(metric)
        return None if row is None else row.delta


def summarise(record: RunRecord, scores: Sequence[ScoreRow], gains: Sequence[SignificanceRow]) -> list[PairSummary]:
    """One summary a pair by decreasing resource; ValueError for a pair without a BLEU score of `moe`."""
    summaries = []
    for pair in record.pairs_by_resource:
        rows = {(row.system, row.metric): row for row in scores if row.pair == pair}
        if (SYSTEM, "bleu") not in rows:
            raise ValueError(f"scores.csv has no bleu of {SYSTEM!r} for pair={pair!r}; score the run again")
        summaries.append(
            PairSummary(
                pair=pair,
                train_pairs=record.train_pairs[pair],
                n_test=rows[SYSTEM, "bleu"].n_test,
                scores=rows,
                gains={row.metric: row for row in gains if row.pair == pair},
            )
        )
    return summaries


def mean(values: Sequence[float | None]) -> float | None:
    """Macro mean, or None unless every value is there."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def headline(summaries: Sequence[PairSummary]) -> str:
    """One sentence: mean BLEU, mean gain over the baselines, how many pairs are better and worse."""
    count = len(summaries)
    bleu = mean([summary.score(SYSTEM, "bleu") for summary in summaries])
    subject = f"Mean BLEU {bleu:.1f} over {count} language pairs" if count > 1 else f"BLEU {bleu:.1f}"
    gain = mean([summary.gain("bleu") for summary in summaries])
    if gain is None:
        return f"{subject}, without bilingual baselines to compare with."
    verdicts = [summary.gains["bleu"].verdict for summary in summaries]
    amount = f"{abs(gain):.1f}"
    direction = "level with" if amount == "0.0" else f"{amount} {'above' if gain > 0 else 'below'}"
    if count == 1:
        surely = "a significant difference" if verdicts[0] else "not a significant difference"
        return f"{subject}, {direction} the bilingual baseline: {surely}."
    better, worse = verdicts.count(1), verdicts.count(-1)
    return (
        f"{subject}, on average {direction} the bilingual baselines: "
        f"{better} of {count} significantly better, {worse} significantly worse."
    )
