"""What one translation job needs, as plain values that travel in a JSON file."""

from dataclasses import dataclass

from pipeline.decode.config import DecodeConfig
from pipeline.parallel.config import RuntimeConfig


@dataclass(frozen=True, kw_only=True)
class TranslateJob:
    """pairs: names; bitexts: their cleaned directories in the same order, whose test split is translated.

    done: rows of each pair that an interrupted attempt translated.
    checkpoints: a training run's directory of checkpoints, of which the best is taken. out: directory of
    `<pair>.rank-N.jsonl`.
    """

    title: str
    slot: int
    pairs: list[str]
    targets: list[str]
    bitexts: list[str]
    vocabulary: str
    checkpoints: str
    out: str
    done: list[list[int]]
    decode: DecodeConfig
    runtime: RuntimeConfig
