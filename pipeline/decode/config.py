"""Configuration of decoding; free of torch so that it loads fast."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args, get_type_hints

SPEED_ONLY = ("batch_tokens", "beam_memory")  # fields that change no translation, but in bf16 or with a capacity
AT_LEAST = {
    **dict.fromkeys(("beam", "n_best", "max_length_extra", "batch_tokens", "average"), 1),
    **dict.fromkeys(("length_penalty", "coverage_penalty", "max_length_ratio", "min_length"), 0),
    **dict.fromkeys(("no_repeat_ngram", "top_k", "seed", "capacity_factor"), 0),
}
OF_SAMPLING = {"temperature": 1.0, "top_k": 0, "top_p": 1.0}
COLDEST = 1e-3  # temperature, by which logits are divided: they stay finite


@dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """How a model translates.

    search: beam, or sample, which draws `n_best` hypotheses. beam: hypotheses kept, 1 is greedy; sampling does without.
    n_best: hypotheses of a sentence that are returned, at most beam ones of a beam search.
    length_norm: what a hypothesis' log-probability is divided by: gnmt is ((5 + |Y|) / 6)^α (arXiv:1609.08144, equation
    14), power is |Y|^α (transformers, CTranslate2), with α = length_penalty and |Y| in target tokens, `</s>` counted.
    coverage_penalty: β of the same equation, 0 for none.
    max_length_ratio, max_length_extra: a translation ends after ratio · source tokens + extra tokens; ratio 0 is the
    same length for all. min_length: tokens before `</s>` is allowed, below that limit. These lengths are of what
    follows a forced prefix. no_repeat_ngram: no n tokens in a row occur twice; 0 allows it.
    temperature, top_k, top_p, seed: of sampling; top_k = 0 and top_p = 1 keep all tokens.
    precision: fp32, bf16, or fp64. capacity_factor: of experts, 0 for no capacity, so that no token is dropped; with a
    capacity, what else is in a batch changes a translation.
    batch_tokens: of the padded sources decoded together, times beam. beam_memory: flattened (GShard, arXiv:2006.16668,
    A.1) or reordered keys and values. Neither changes translations, unless by rounding in bf16.
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
    beam_memory: Literal["flattened", "reordered"] = "flattened"
    average: int = 1
    average_of: Literal["last", "best"] = "last"

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(DecodeConfig).items():
            value, choices = getattr(self, name), get_args(hint)
            if choices and value not in choices:
                raise ValueError(f"decode.{name}={value!r} is not one of {', '.join(choices)}")
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"decode.{name}={value} must be a finite number")
        for name, least in AT_LEAST.items():
            if getattr(self, name) < least:
                remedy = f"be at least {least}" if least else "not be negative"
                raise ValueError(f"decode.{name}={getattr(self, name)} must {remedy}")
        if self.seed >= 1 << 63:
            raise ValueError(f"decode.seed={self.seed} must be below 2^63")
        if self.max_length_ratio == 0 and self.min_length >= self.max_length_extra:
            raise ValueError(
                f"decode.min_length={self.min_length} leaves no room for </s> within decode.max_length_extra="
                f"{self.max_length_extra}; lower the one or raise the other"
            )
        self._check_search()

    def _check_search(self) -> None:
        if self.search == "beam":
            if self.n_best > self.beam:
                raise ValueError(f"decode.n_best={self.n_best} hypotheses need decode.beam={self.n_best} or more")
            for name, neutral in OF_SAMPLING.items():
                if getattr(self, name) != neutral:
                    raise ValueError(
                        f"decode.{name}={getattr(self, name)} is of sampling; set decode.search=sample, or leave it "
                        f"{neutral}"
                    )
        if self.temperature < COLDEST:
            raise ValueError(
                f"decode.temperature={self.temperature} must be at least {COLDEST}; for the likeliest token take "
                "decode.top_k=1"
            )
        if not 0 < self.top_p <= 1:
            raise ValueError(f"decode.top_p={self.top_p} must lie in (0, 1]; 1 keeps all tokens")

    @property
    def hypotheses(self) -> int:
        """Hypotheses of a sentence that are decoded side by side."""
        return self.beam if self.search == "beam" else self.n_best

    @property
    def depends_on_batch(self) -> bool:
        """Whether a translation depends on what it is decoded with, by more than the last bits of a float32."""
        return self.precision == "bf16" or self.capacity_factor > 0

    def decisive(self) -> dict[str, Any]:
        """What can change a translation."""
        without = set(SPEED_ONLY)
        if self.depends_on_batch:
            without.remove("batch_tokens")
        if self.precision == "bf16":
            without.remove("beam_memory")
        return {key: value for key, value in asdict(self).items() if key not in without}

    @property
    def averaged_rule(self) -> str:
        """The rule of train.checkpoints that keeps what is averaged."""
        return "last_n" if self.average_of == "last" else "best_k"
