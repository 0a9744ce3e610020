"""The limits below which a comparison of two systems gets no verdict."""

from collections.abc import Iterable

FEWEST_LINES = 100  # a bootstrap of a smaller test set takes its few sentences for the language
LOWEST_BLEU = 1.0  # two systems below it translate nothing, so their difference means nothing
FEW_LINES = f"under {FEWEST_LINES} test lines"
LOW_BLEU = f"all below BLEU {LOWEST_BLEU:g}"


def no_verdict(num_lines: int, bleu: Iterable[float]) -> str:
    """Return the reason why systems are called neither better nor worse nor level, empty where a verdict is due.

    num_lines: lines of the test set.
    bleu: BLEU of each system.
    """
    if num_lines < FEWEST_LINES:
        return FEW_LINES
    return LOW_BLEU if max(bleu) < LOWEST_BLEU else ""
