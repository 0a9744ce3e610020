"""The scores of a run as a table for a terminal."""

from collections.abc import Sequence

from eval.number_format import decimal, integer, signed
from eval.records.scores import BASELINE, SYSTEM
from eval.report.summary import PairSummary
from eval.text_table import aligned

VERDICTS = {1: "better", 0: "no", -1: "worse"}


def text_table(summaries: Sequence[PairSummary]) -> str:
    """Return a line for each pair: its BLEU, and the comparison with its bilingual model if there is one."""
    compared = any(summary.gains for summary in summaries)
    header = ["pair", "rows", "BLEU", *(["bilingual", "difference", "significant"] if compared else [])]
    rows = [_row(summary)[: len(header)] for summary in summaries]
    return aligned([header, *rows], left=(0, len(header) - 1) if compared else (0,))


def _row(summary: PairSummary) -> list[str]:
    own, bilingual = (decimal(summary.score(system, "bleu")) for system in (SYSTEM, BASELINE))
    gain = summary.gains.get("bleu")
    verdict = VERDICTS[gain.verdict] if gain is not None else ""
    return [summary.pair, integer(summary.train_pairs), own, bilingual, signed(summary.gain("bleu")), verdict]
