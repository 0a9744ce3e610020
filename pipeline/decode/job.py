"""What a translation job needs, as plain values that travel in a JSON file."""

from dataclasses import dataclass

from pipeline.decode.config import DecodeConfig
from pipeline.jobs.runtime import RuntimeConfig


@dataclass(frozen=True, kw_only=True)
class TranslateJob:
    """pairs: names; bitexts: their cleaned directories in the same order, whose test split is translated.

    done: rows of each pair that an interrupted attempt translated, each once.
    checkpoints: a training run's directory of checkpoints, of which the best is taken. out: directory of
    `<pair>.rank-N.jsonl`. experts: path of a pruning (`pipeline.decode.pruned`), or empty for all experts.
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
    experts: str = ""


@dataclass(frozen=True, kw_only=True)
class LinesJob:
    """lines: Parquet file with the column `line`; shards: first row and end of those that are to be translated.

    target: language asked for. max_source_tokens: of a line, tag and end counted; longer ones are left out.
    out: directory of the shards' files (`pipeline.decode.shards`). experts: as in TranslateJob.
    """

    title: str
    lines: str
    shards: list[list[int]]
    target: str
    max_source_tokens: int
    vocabulary: str
    checkpoints: str
    out: str
    decode: DecodeConfig
    runtime: RuntimeConfig
    experts: str = ""


@dataclass(frozen=True, kw_only=True)
class RoutingJob:
    """pairs: names; encoded: their directories of encoded rows in the same order, whose `split` is routed.

    out: directory of `routing.rank-N.json`. The other fields as in TranslateJob.
    """

    title: str
    pairs: list[str]
    encoded: list[str]
    split: str
    vocabulary: str
    checkpoints: str
    out: str
    decode: DecodeConfig
    runtime: RuntimeConfig
