"""Configuration of decoding. Free of torch so that it loads fast."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args, get_type_hints

SPEED_ONLY = ("batch_tokens", "beam_memory")  # fields that affect translations only in bf16 or with a capacity
AT_LEAST = {
    **dict.fromkeys(("beam", "n_best", "max_length_extra", "batch_tokens", "average"), 1),
    **dict.fromkeys(("length_penalty", "coverage_penalty", "max_length_ratio", "min_length"), 0),
    **dict.fromkeys(("no_repeat_ngram", "top_k", "seed", "capacity_factor"), 0),
}
SAMPLING_DEFAULTS = {"temperature": 1.0, "top_k": 0, "top_p": 1.0}  # the only values in a beam search
COLDEST = 1e-3  # lowest temperature, for which logits divided by it are still finite


@dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """Settings of decoding. Lengths count target tokens after a forced prefix.

    The configuration group `decode` is made of these fields and their defaults.

    search: beam search, or sample, which draws `n_best` hypotheses at random.
    beam: hypotheses that are kept in a beam search; 1 is greedy search.
    n_best: hypotheses of a sentence that are returned; in a beam search at most `beam`.
    length_penalty: α of `length_norm`.
    length_norm: divisor of a hypothesis' log-probability. gnmt is ((5 + |Y|) / 6)^α (arXiv:1609.08144, equation 14),
        power is |Y|^α (transformers, CTranslate2). |Y| is the number of target tokens with `</s>`.
    coverage_penalty: β of the same equation; 0 is no penalty.
    max_length_ratio, max_length_extra: a translation ends after ratio · source tokens + extra tokens.
    min_length: tokens before `</s>` is allowed.
    no_repeat_ngram: length of token sequences that must not occur twice; 0 allows all repetitions.
    temperature: divisor of the logits in sampling.
    top_k: most probable tokens that sampling chooses from; 0 is all.
    top_p: sampling chooses from the most probable tokens of this total probability; 1 is all.
    seed: seed of sampling.
    precision: fp32, bf16 or fp64. A run's default is fp32 on a CPU and bf16 on a GPU.
    capacity_factor: capacity of experts; 0 is no capacity, so that no token is dropped. With a capacity, a translation
        depends on the other sentences of its batch.
    batch_tokens: padded source tokens times `beam` that are decoded together. It does not affect translations, except
        by rounding in bf16 or with a capacity.
    beam_memory: flattened (GShard, arXiv:2006.16668, A.1) or reordered keys and values. It does not affect
        translations, except by rounding in bf16.
    average: number of checkpoints whose weights are averaged; 1 takes the best one.
    average_of: averages the last or the best checkpoints that training kept (train.checkpoints.last_n, best_k).
    """

    search: Literal["beam", "sample"] = "beam"
    beam: int = 4
    n_best: int = 1
    length_penalty: float = 1.0
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
            for name, neutral in SAMPLING_DEFAULTS.items():
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
        """Hypotheses of a sentence that are decoded together."""
        return self.beam if self.search == "beam" else self.n_best

    @property
    def depends_on_batch(self) -> bool:
        """True if the rest of its batch can change a translation by more than the last bits of a float32."""
        return self.precision == "bf16" or self.capacity_factor > 0

    def decisive(self) -> dict[str, Any]:
        """Return the settings that can change a translation."""
        excluded = set(SPEED_ONLY)
        if self.depends_on_batch:
            excluded.remove("batch_tokens")
        if self.precision == "bf16":
            excluded.remove("beam_memory")
        return {key: value for key, value in asdict(self).items() if key not in excluded}

    @property
    def averaged_rule(self) -> str:
        """The setting of train.checkpoints that keeps the checkpoints to average."""
        return "last_n" if self.average_of == "last" else "best_k"
