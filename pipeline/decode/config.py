"""Configuration of decoding; free of torch so that it loads fast."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from pipeline.parallel.config import RuntimeConfig

SPEED_ONLY = ("batch_tokens", "beam_memory")  # fields that change no translation


@dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """How a model translates.

    search: beam, or sample, which draws `n_best` hypotheses. beam: hypotheses kept; 1 is greedy. n_best: hypotheses of
    a sentence that are returned, at most beam ones of a beam search.
    length_norm: what a hypothesis' log-probability is divided by: gnmt is ((5 + |Y|) / 6)^α (arXiv:1609.08144, equation
    14), power is |Y|^α (transformers, CTranslate2), with α = length_penalty and |Y| in target tokens, `</s>` counted.
    coverage_penalty: β of the same equation, 0 for none.
    max_length_ratio, max_length_extra: a translation ends after ratio · source tokens + extra tokens. min_length: of
    tokens before `</s>` is allowed. no_repeat_ngram: no n tokens in a row occur twice; 0 allows it.
    temperature, top_k, top_p, seed: of sampling; top_k = 0 and top_p = 1 keep all tokens.
    precision: fp32, bf16, or fp64. capacity_factor: of experts, 0 for no capacity, so that no token is dropped; with a
    capacity, what else is in a batch changes a translation.
    batch_tokens: of the padded sources decoded together, times beam. beam_memory: flattened (GShard, arXiv:2006.16668,
    A.1) or reordered keys and values. Neither changes translations.
    average: checkpoints whose weights are averaged, 1 takes the best alone; average_of: the last ones or the best ones
    that training kept (train.checkpoints.last_n, best_k).
    """

    search: Literal["beam", "sample"] = "beam"
    beam: int
    n_best: int = 1
    length_penalty: float
    length_norm: Literal["gnmt", "power"] = "gnmt"
    coverage_penalty: float = 0.0
    max_length_ratio: float = 2.0
    max_length_extra: int = 16
    min_length: int = 0
    no_repeat_ngram: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 1
    precision: Literal["fp32", "bf16", "fp64"] = "fp32"
    capacity_factor: float = 0.0
    batch_tokens: int = 8192
    beam_memory: Literal["flattened", "reordered"] = "reordered"
    average: int = 1
    average_of: Literal["last", "best"] = "last"

    def __post_init__(self) -> None:
        for name in ("beam", "n_best", "batch_tokens", "max_length_extra", "average"):
            if getattr(self, name) < 1:
                raise ValueError(f"decode.{name}={getattr(self, name)} must be at least 1")
        for name in (
            "length_penalty",
            "coverage_penalty",
            "max_length_ratio",
            "min_length",
            "no_repeat_ngram",
            "top_k",
        ):
            if getattr(self, name) < 0:
                raise ValueError(f"decode.{name}={getattr(self, name)} must not be negative")
        if self.search == "beam" and self.n_best > self.beam:
            raise ValueError(f"decode.n_best={self.n_best} hypotheses need decode.beam={self.n_best} or more")

    def decisive(self) -> dict[str, Any]:
        """What can change a translation."""
        return {key: value for key, value in asdict(self).items() if key not in SPEED_ONLY}

    @property
    def averaged_rule(self) -> str:
        """The rule of train.checkpoints that keeps what is averaged."""
        return "last_n" if self.average_of == "last" else "best_k"


def check_placement(decode: DecodeConfig, runtime: RuntimeConfig) -> None:
    """Raise ValueError where experts are to be cut over processes that decode different sentences, and have a capacity,
    which is the same number of rows on all of them."""
    if runtime.decode_experts == "sharded" and decode.capacity_factor > 0:
        raise ValueError(
            f"decode.capacity_factor={decode.capacity_factor} with runtime.decode_experts=sharded: slots of an expert "
            "follow the batch, and processes decode different ones; set decode.capacity_factor=0, or "
            "runtime.decode_experts=replicated"
        )
