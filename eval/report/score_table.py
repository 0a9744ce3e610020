"""The scores of a run as a table for a terminal."""

from collections.abc import Sequence

from eval.number_format import decimal, integer, signed
from eval.records.scores import BASELINE, SYSTEM
from eval.report.summary import PairSummary
from eval.text_table import aligned

VERDICTS = {1: "better", 0: "no", -1: "worse"}


def text_table(summaries: Sequence[PairSummary]) -> str:
    """Return a line for each pair: its BLEU, and the comparison with its bilingual model if there is one.

    The columns `before` and `since` compare with the model that the training started from, if that could translate a
    pair: a negative number is what was forgotten.
    """
    compared = any(summary.gains for summary in summaries)
    began = any(summary.forgetting for summary in summaries)
    header = ["pair", "rows", "BLEU", *(["before", "since"] if began else [])]
    rows = [_row(summary) + (_forgetting(summary) if began else []) for summary in summaries]
    if not compared:
        return aligned([header, *rows], left=(0,))
    header += ["bilingual", "difference", "significant"]
    rows = [row + _comparison(summary) for row, summary in zip(rows, summaries, strict=True)]
    return aligned([header, *rows], left=(0, len(header) - 1))


def _row(summary: PairSummary) -> list[str]:
    return [summary.pair, integer(summary.train_pairs), decimal(summary.score(SYSTEM, "bleu"))]


def _forgetting(summary: PairSummary) -> list[str]:
    row = summary.forgetting.get("bleu")
    return [decimal(row.before if row else None), signed(row.delta if row else None)]


def _comparison(summary: PairSummary) -> list[str]:
    gain = summary.gains.get("bleu")
    verdict = "" if gain is None else "no verdict" if summary.no_verdict else VERDICTS[gain.verdict]
    return [decimal(summary.score(BASELINE, "bleu")), signed(summary.gain("bleu")), verdict]
