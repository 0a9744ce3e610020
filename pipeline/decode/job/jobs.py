"""Jobs of several processes that use a trained model, as plain values that travel in a JSON file."""

from dataclasses import dataclass, field

from pipeline.decode.config import DecodeConfig
from pipeline.decode.job.shards import Shard
from pipeline.decode.text.line import Long
from pipeline.jobs.runtime import RuntimeConfig

NATS = "nats_per_token.npy"  # result of a CrossEntropyJob


@dataclass(frozen=True, kw_only=True)
class TranslateJob:
    """A job that translates lines of text (`pipeline.decode.job.process`).

    title: name for messages.
    slot: number of the job among those that run at the same time: the line of its progress bar, and its device.
    rounds: shards of lines. The lines of one round share batches and are in memory together.
    max_source_tokens, long: as in `Translator`. No line may be split.
    vocabulary: directory of the vocabulary.
    checkpoints: a training run's directory of checkpoints.
    log: directory of the logs.
    experts: path of a pruning (`pipeline.decode.experts.pruned`), or empty for all experts.
    ensemble: directories of checkpoints of the runs of `decode.ensemble`.
    """

    title: str
    slot: int = 0
    rounds: list[list[Shard]]
    max_source_tokens: int
    long: Long
    vocabulary: str
    checkpoints: str
    log: str
    decode: DecodeConfig
    runtime: RuntimeConfig
    experts: str = ""
    ensemble: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class RoutingJob:
    """A job that records the experts that tokens choose (`pipeline.decode.job.routing`).

    pairs: names of the pairs.
    encoded: directories of their encoded rows, in the same order.
    split: the split to record.
    out: directory of the results of each process, `routing.rank-N.json` and what `piece_use` writes.
    Other fields are as in TranslateJob.
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


@dataclass(frozen=True, kw_only=True)
class CrossEntropyJob:
    """A job that computes the cross-entropy of given translations (`pipeline.decode.job.cross_entropy`).

    encoded: directory of the encoded rows.
    split: the split to score.
    out: directory of the result.
    Other fields are as in TranslateJob.
    """

    title: str
    slot: int
    encoded: str
    split: str
    vocabulary: str
    checkpoints: str
    out: str
    runtime: RuntimeConfig
