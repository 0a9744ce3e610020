"""Requests to a search and the hypotheses that it returns, with their length limit and length penalty."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.decode.config import DecodeConfig
from pipeline.vocab.symbols import BOS, EOS, PAD


@dataclass(frozen=True, kw_only=True)
class Request:
    """A sentence to translate.

    source: token ids with tag and `</s>`.
    start: target ids that every translation into the language begins with, such as its tag. They count as tokens of
        the translation, and are certain.
    prefix: target ids that the translation begins with, after those of `start`.
    number: number of the line in its text, from 0. Sampling seeds its draws with it.
    part: number of the part, from 0, when a line is split. Sampling seeds its draws with it, too.
    pair: language pair, `de:en`, for models with gates that choose by task.
    """

    source: Sequence[int]
    start: Sequence[int] = ()
    prefix: Sequence[int] = ()
    number: int = 0
    part: int = 0
    pair: str = ""


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """A finished translation of a sentence.

    tokens: target ids with the forced prefix, without `</s>`.
    score: log-probability of the tokens after the prefix, normalised by their length, plus the coverage penalty.
    at_limit: the limit of length ended it before `</s>`.
    """

    tokens: list[int]
    score: float
    at_limit: bool = False


def length_penalty(length: int, config: DecodeConfig) -> float:
    """Return the divisor for the log-probability of `length` target tokens. `</s>` counts, a prefix does not."""
    base = (5 + length) / 6 if config.length_norm == "gnmt" else length
    return float(base**config.length_penalty)


def max_length(source_tokens: int, config: DecodeConfig) -> int:
    """Return the most target tokens that a translation may have. `</s>` counts, a prefix does not."""
    return int(config.max_length_ratio * source_tokens) + config.max_length_extra


def check(request: Request) -> None:
    """Raise ValueError if the source is empty or the prefix has special tokens."""
    if not request.source:
        raise ValueError(f"sentence {request.number} has no source tokens; it needs a tag and </s> at least")
    forbidden = sorted({BOS, PAD, EOS}.intersection(request.prefix))
    if forbidden:
        raise ValueError(f"the prefix of sentence {request.number} has the special tokens {forbidden}; leave them out")
