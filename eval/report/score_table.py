"""The scores of a run as a table for a terminal."""

from collections.abc import Sequence

from eval.number_format import decimal, integer, signed
from eval.records.ending import MARK, MEANING
from eval.records.scores import BASELINE, SYSTEM
from eval.report.summary import PairSummary
from eval.text_table import aligned

VERDICTS = {1: "better", 0: "no", -1: "worse"}


def text_table(summaries: Sequence[PairSummary]) -> str:
    """Return a line for each pair: its BLEU, and the comparison with its bilingual model if there is one.

    The columns `before` and `since` compare with the model that the training started from, if that could translate a
    pair: a negative number is what was forgotten. A score has a mark if its budget ended the model while it was still
    improving, and the last line is then the mark's meaning.
    """
    compared = any(summary.gains for summary in summaries)
    began = any(summary.forgetting for summary in summaries)
    header = ["pair", "rows", "BLEU", *(["before", "since"] if began else [])]
    own = _scores(summaries, SYSTEM)
    rows = [
        [summary.pair, integer(summary.train_pairs), score, *(_forgetting(summary) if began else [])]
        for summary, score in zip(summaries, own, strict=True)
    ]
    if compared:
        header += ["bilingual", "difference", "significant"]
        bilingual = _scores(summaries, BASELINE)
        rows = [
            [*row, score, *_comparison(summary)] for row, score, summary in zip(rows, bilingual, summaries, strict=True)
        ]
    table = aligned([header, *rows], left=(0, len(header) - 1) if compared else (0,))
    return f"{table}\n{MARK} {MEANING}" if MARK in table else table


def _scores(summaries: Sequence[PairSummary], system: str) -> list[str]:
    """Return the system's BLEU of every pair, with marks. Where one score has a mark, the others have blanks."""
    marks = [f" {MARK}" if system in summary.unfinished else "" for summary in summaries]
    width = max(map(len, marks), default=0)
    scores = [decimal(summary.score(system, "bleu")) for summary in summaries]
    return [f"{score}{mark:{width}}" for score, mark in zip(scores, marks, strict=True)]


def _forgetting(summary: PairSummary) -> list[str]:
    row = summary.forgetting.get("bleu")
    return [decimal(row.before if row else None), signed(row.delta if row else None)]


def _comparison(summary: PairSummary) -> list[str]:
    gain = summary.gains.get("bleu")
    verdict = "" if gain is None else "no verdict" if summary.no_verdict else VERDICTS[gain.verdict]
    return [signed(summary.gain("bleu")), verdict]
