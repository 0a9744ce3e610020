"""Lines to translate and their translations, as plain values. Free of torch."""

from dataclasses import dataclass
from typing import Literal

Long = Literal["split", "truncate", "skip", "whole"]  # treatment of a line with too many tokens: `Translator`
EMPTY, TOO_LONG, PREFIX_TOO_LONG = "empty", "too_long", "prefix_too_long"
SPLIT, TRUNCATED = "split", "truncated"


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line to translate.

    source: code of the language, which gates that choose by task and vocabularies with tags by side need.
    target: code of the language of translations.
    pivot: code of the language of a middle step (`pipeline.decode.job.pivot`), empty for one step.
    prefix: text that the translation begins with.
    number: number of the line in its text, from 0. Sampling seeds its draws with it.
    """

    text: str
    source: str = ""
    target: str
    pivot: str = ""
    prefix: str = ""
    number: int = 0


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """A translation of a line.

    score: as in `Hypothesis`. A split line has the mean over its parts, weighted by tokens of their best hypotheses.
    """

    text: str
    score: float


@dataclass(frozen=True, kw_only=True)
class Translated:
    """The outcome of translating a line.

    alternatives: `n_best` translations, best first; none for a skipped line.
    skipped: reason of a skipped line: `empty`, `too_long`, or `prefix_too_long` (more tokens than a source may have).
    cut: `split` or `truncated` for a line that was too long to be translated whole.
    pivot: translation into the language of the middle step, empty for one step.
    """

    alternatives: tuple[Alternative, ...] = ()
    skipped: str = ""
    cut: str = ""
    pivot: str = ""

    @property
    def text(self) -> str:
        return self.alternatives[0].text if self.alternatives else ""

    @property
    def score(self) -> float:
        return self.alternatives[0].score if self.alternatives else 0.0
