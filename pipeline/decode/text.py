"""Lines of text in, translations out, as plain values; free of torch."""

from dataclasses import dataclass
from typing import Literal

Long = Literal["split", "truncate", "skip", "whole"]  # what becomes of a line of too many tokens: `Translator`
EMPTY, TOO_LONG, PREFIX_TOO_LONG = "empty", "too_long", "prefix_too_long"
SPLIT, TRUNCATED = "split", "truncated"


@dataclass(frozen=True, kw_only=True)
class Line:
    """text: in the source language. target: code of the language asked for. prefix: what the translation begins with.
    number: of the line in its text, from 0, by which sampling draws."""

    text: str
    target: str
    prefix: str = ""
    number: int = 0


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """text: a translation. score: of `Hypothesis`; of a line that was split the mean of its parts', by the tokens of
    their best ones."""

    text: str
    score: float


@dataclass(frozen=True, kw_only=True)
class Translated:
    """What became of a line. alternatives: best first, `n_best` of them, none of a line that is skipped. skipped: why,
    `empty`, `too_long` or `prefix_too_long` (more tokens than a source may have), else empty. cut: `split` into parts
    or `truncated` because it was too long, else empty."""

    alternatives: tuple[Alternative, ...] = ()
    skipped: str = ""
    cut: str = ""

    @property
    def text(self) -> str:
        return self.alternatives[0].text if self.alternatives else ""

    @property
    def score(self) -> float:
        return self.alternatives[0].score if self.alternatives else 0.0
