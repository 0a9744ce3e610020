"""The summary of one run: its scores by pair, and a headline sentence."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from eval.number_format import signed
from eval.records.ending import MEANING, unfinished_systems
from eval.records.results import RunResults
from eval.records.run_record import RunRecord
from eval.records.scores import BASELINE, METRICS, SYSTEM, Change, ScoreRow, SignificanceRow
from eval.score.macro import complete_mean
from eval.score.verdict import no_verdict


@dataclass(frozen=True, kw_only=True)
class PairSummary:
    """The scores of a pair.

    scores: by (system, metric).
    gains: comparisons with the baseline by metric.
    unfinished: the systems that their budget ended while they were still improving.
    forgetting: comparisons with the model that the training started from, by metric.
    """

    pair: str
    train_pairs: int
    n_test: int
    scores: Mapping[tuple[str, str], ScoreRow]
    gains: Mapping[str, SignificanceRow]
    unfinished: frozenset[str] = frozenset()
    forgetting: Mapping[str, Change] = field(default_factory=dict)

    def score(self, system: str, metric: str) -> float | None:
        """Return a score, or None if the run does not have it."""
        row = self.scores.get((system, metric))
        return None if row is None else row.score

    def gain(self, metric: str) -> float | None:
        """Return the gain over the baseline, or None without a baseline."""
        row = self.gains.get(metric)
        return None if row is None else row.delta

    @property
    def no_verdict(self) -> str:
        """The reason why the pair gets no verdict, empty where it gets one."""
        return no_verdict(self.n_test, [row.score for (_, metric), row in self.scores.items() if metric == "bleu"])


def summarise(run: RunResults) -> list[PairSummary]:
    """Return a summary of each pair, in decreasing order of training data.

    Raises ValueError for a pair without a BLEU score of `moe`.
    """
    record, summaries = run.record, []
    for pair in record.pairs_by_resource:
        rows = {(row.system, row.metric): row for row in run.scores if row.pair == pair}
        if (SYSTEM, "bleu") not in rows:
            raise ValueError(f"scores.csv has no bleu of {SYSTEM!r} for pair={pair!r}; score the run again")
        summaries.append(
            PairSummary(
                pair=pair,
                train_pairs=record.train_pairs[pair],
                n_test=rows[SYSTEM, "bleu"].n_test,
                scores=rows,
                gains={row.metric: row for row in run.gains if row.pair == pair},
                forgetting={row.metric: row for row in run.forgetting if row.pair == pair},
                unfinished=unfinished_systems(record.systems, pair),
            )
        )
    return summaries


def headline(summaries: Sequence[PairSummary]) -> str:
    """Return the headline of a run: mean BLEU, the mean gain over the baselines, and the wins and losses by metric.

    The gain is that of the pairs that have a baseline.

    A second sentence names the systems that their budget ended while they were still improving, a third one compares
    with the model that the training started from.
    """
    count = len(summaries)
    bleu = complete_mean([summary.score(SYSTEM, "bleu") for summary in summaries])
    subject = f"Mean BLEU {bleu:.1f} over {count} language pairs" if count > 1 else f"BLEU {bleu:.1f}"
    compared = [summary for summary in summaries if summary.gain("bleu") is not None]
    gain = complete_mean([summary.gain("bleu") for summary in compared])
    further = f"{_unfinished(summaries)}{_forgetting(summaries)}"
    if gain is None:
        return f"{subject}, without bilingual baselines to compare with.{further}"
    amount = f"{abs(gain):.1f}"
    direction = "level with" if amount == "0.0" else f"{amount} {'above' if gain > 0 else 'below'}"
    if len(compared) < count:
        pairs = f"the {len(compared)} pairs" if len(compared) > 1 else "the one pair"
        baselines = f"on {pairs} with a bilingual baseline {{}} it"
    else:
        baselines = "on average {} the bilingual baselines" if count > 1 else "{} the bilingual baseline"
    return f"{subject}, {baselines.format(direction)}: {_verdicts(compared)}.{further}"


def ensemble_sentence(record: RunRecord) -> str:
    """Return a sentence, after a space, on the other models that took part in the translations; empty without them."""
    if not record.ensemble:
        return ""
    compared = ", while each bilingual model translates alone" if BASELINE in record.systems else ""
    return f" It translates together with the models of {', '.join(record.ensemble)}{compared}."


def unfinished_sentence(baselines: Sequence[bool], models: Mapping[str, bool]) -> str:
    """Return a sentence, after a space, on the models that were still improving; empty if there is none.

    baselines: for each bilingual model, true if it was still improving.
    models: the same of the other models, by their names.
    """
    counts = f"{sum(baselines)} of {len(baselines)} baselines" if len(baselines) > 1 else "the baseline"
    names = [name for name, is_unfinished in models.items() if is_unfinished]
    if len(names) == len(models) > 2:
        names = [f"all {len(names)} runs"]
    text = listed([*([counts] if any(baselines) else []), *names])
    text = f"{text[0].upper()}{text[1:]}" if text.startswith(("the ", "all ")) else text  # a run's name stays as it is
    return f" {text} {MEANING}." if text else ""


def listed(names: Sequence[str]) -> str:
    """Return names as a sentence lists them: a, b and c."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _unfinished(summaries: Sequence[PairSummary]) -> str:
    baselines = [BASELINE in summary.unfinished for summary in summaries if (BASELINE, "bleu") in summary.scores]
    model = "the multilingual model" if len(summaries) > 1 else "the model"
    is_unfinished = any(SYSTEM in summary.unfinished for summary in summaries)
    return unfinished_sentence(baselines, {model: is_unfinished})


def _forgetting(summaries: Sequence[PairSummary]) -> str:
    """Return a sentence, after a space, on the pairs that the model translated before this training."""
    rows = [summary.forgetting["bleu"] for summary in summaries if "bleu" in summary.forgetting]
    if not rows:
        return ""
    before, delta = (sum(values) / len(rows) for values in zip(*((row.before, row.delta) for row in rows), strict=True))
    pairs = f"the {len(rows)} pairs" if len(rows) > 1 else "the pair"
    return f" On {pairs} that it could translate before this training: {before:.1f} before, {signed(delta)} since."


def _verdicts(summaries: Sequence[PairSummary]) -> str:
    """Return the numbers of significant wins and losses by every metric, and of the pairs without a verdict."""
    judged = [summary for summary in summaries if not summary.no_verdict]
    verdicts = {
        metric.title: [summary.gains[name].verdict for summary in judged]
        for name, metric in METRICS.items()
        if all(name in summary.gains for summary in summaries)
    }
    if len(summaries) == 1:
        words = {1: "significantly better by", 0: "not significantly different by", -1: "significantly worse by"}
        texts = [f"{words[verdict]} {title}" for title, of_pairs in verdicts.items() for verdict in of_pairs]
        return ", ".join(texts) or f"no verdict ({summaries[0].no_verdict})"
    parts = []
    if judged:
        better = [f"{values.count(1)} of {len(judged)} by {title}" for title, values in verdicts.items()]
        worse = [f"{values.count(-1)} by {title}" for title, values in verdicts.items() if -1 in values]
        parts = [f"significantly better in {', '.join(better)}", f"significantly worse in {', '.join(worse) or 'none'}"]
    reasons = Counter(summary.no_verdict for summary in summaries if summary.no_verdict)
    if reasons:
        parts.append("no verdict in " + ", ".join(f"{count} ({reason})" for reason, count in reasons.items()))
    return ", ".join(parts)
