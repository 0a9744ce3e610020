"""What is asked of a search, what it answers, and how long and how good an answer is."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.decode.config import DecodeConfig
from pipeline.vocab.symbols import BOS, EOS, PAD


@dataclass(frozen=True, kw_only=True)
class Request:
    """A sentence to translate. source: token ids with tag and `</s>`. prefix: target ids that the translation begins
    with. number, part: of the sentence in its text, from 0, and of this in a sentence that is split; sampling draws by
    both."""

    source: Sequence[int]
    prefix: Sequence[int] = ()
    number: int = 0
    part: int = 0


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """tokens: without `</s>`, forced prefix included. score: log-probability of what follows the prefix, normalised by
    its length, plus the coverage penalty; the higher the better."""

    tokens: list[int]
    score: float


def length_penalty(length: int, config: DecodeConfig) -> float:
    """What a log-probability of `length` target tokens behind a prefix, `</s>` counted, is divided by."""
    base = (5 + length) / 6 if config.length_norm == "gnmt" else length
    return float(base**config.length_penalty)


def max_length(source_tokens: int, config: DecodeConfig) -> int:
    """Most target tokens behind a prefix, `</s>` counted."""
    return int(config.max_length_ratio * source_tokens) + config.max_length_extra


def check(request: Request) -> None:
    """Raise ValueError on what cannot be translated."""
    if not request.source:
        raise ValueError(f"sentence {request.number} has no source tokens; it needs a tag and </s> at least")
    forbidden = sorted({BOS, PAD, EOS}.intersection(request.prefix))
    if forbidden:
        raise ValueError(f"the prefix of sentence {request.number} has the special tokens {forbidden}; leave them out")
