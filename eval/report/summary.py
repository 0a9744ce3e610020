"""The summary of one run: its scores by pair, and a headline sentence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eval.records.run_record import RunRecord
from eval.records.scores import SYSTEM, ScoreRow, SignificanceRow
from eval.score.macro import complete_mean


@dataclass(frozen=True, kw_only=True)
class PairSummary:
    """The scores of a pair.

    scores: by (system, metric).
    gains: comparisons with the baseline by metric.
    """

    pair: str
    train_pairs: int
    n_test: int
    scores: Mapping[tuple[str, str], ScoreRow]
    gains: Mapping[str, SignificanceRow]

    def score(self, system: str, metric: str) -> float | None:
        """Return a score, or None if the run does not have it."""
        row = self.scores.get((system, metric))
        return None if row is None else row.score

    def gain(self, metric: str) -> float | None:
        """Return the gain over the baseline, or None without a baseline."""
        row = self.gains.get(metric)
        return None if row is None else row.delta


def summarise(record: RunRecord, scores: Sequence[ScoreRow], gains: Sequence[SignificanceRow]) -> list[PairSummary]:
    """Return a summary of each pair, in decreasing order of training data.

    Raises ValueError for a pair without a BLEU score of `moe`.
    """
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


def headline(summaries: Sequence[PairSummary]) -> str:
    """Return one sentence with the mean BLEU, the mean gain over the baselines, and the numbers of wins and losses."""
    count = len(summaries)
    bleu = complete_mean([summary.score(SYSTEM, "bleu") for summary in summaries])
    subject = f"Mean BLEU {bleu:.1f} over {count} language pairs" if count > 1 else f"BLEU {bleu:.1f}"
    gain = complete_mean([summary.gain("bleu") for summary in summaries])
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
