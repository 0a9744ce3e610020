"""Configuration of decoding. Free of torch so that it loads fast."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from eval.records.decisive import decisive_decoding

AT_LEAST = {
    **dict.fromkeys(("beam", "n_best", "max_length_extra", "batch_tokens", "average"), 1),
    **dict.fromkeys(("length_penalty", "coverage_penalty", "max_length_ratio", "min_length"), 0),
    **dict.fromkeys(("no_repeat_ngram", "top_k", "seed", "capacity_factor", "draws"), 0),
}
SAMPLING_DEFAULTS = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "draws": 0}  # the only values in a beam search
# Settings that are left out of keys and records where they have no effect, so that the keys are those of old versions.
DECODE_UNSET: dict[str, Any] = {
    "choose": "likeliest",
    "utility": "chrf",
    "draws": 0,
    "ensemble": (),
    "combine": "linear",
}
COLDEST = 1e-3  # lowest temperature, for which logits divided by it are still finite


@dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """Settings of decoding. Lengths count target tokens after a forced prefix.

    The configuration group `decode` is made of these fields and their defaults.

    search: beam search, or sample, which draws hypotheses at random: `draws` of them.
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
    draws: hypotheses of a sentence that sampling draws, of which `n_best` are returned; 0 draws `n_best`.
    seed: seed of sampling.
    choose: the order of a sentence's hypotheses. likeliest takes their scores. mbr takes the mean `utility` of a
        translation over all hypotheses of the search (minimum Bayes risk, arXiv:2005.10283).
    utility: sacreBLEU's metric that compares two translations for mbr: chrf, chrf++ or bleu.
    precision: fp32, bf16, fp64 or int8, which is for CPUs with VNNI. A run's default is fp32 on a CPU and bf16 on a
        GPU.
    capacity_factor: capacity of experts; 0 is no capacity, so that no token is dropped. With a capacity, a translation
        depends on the other sentences of its batch.
    batch_tokens: padded source tokens times `beam` that are decoded together. It does not affect translations, except
        by rounding in bf16 or int8 or with a capacity.
    beam_memory: flattened (GShard, arXiv:2006.16668, A.1) or reordered keys and values. It does not affect
        translations, except by rounding in bf16 or int8.
    average: number of checkpoints whose weights are averaged; 1 takes the best one.
    average_of: averages the last or the best checkpoints that training kept (train.checkpoints.last_n, best_k).
    ensemble: names of finished runs with the same vocabulary whose models translate together with the run's.
    combine: quantity whose mean over the models of an ensemble is taken. linear is for probabilities, log_linear for
        their logarithms, weights for the weights.
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
    draws: int = 0
    seed: int = 1
    choose: Literal["likeliest", "mbr"] = "likeliest"
    utility: Literal["chrf", "chrf++", "bleu"] = "chrf"
    precision: Literal["fp32", "bf16", "fp64", "int8"] = "fp32"
    capacity_factor: float = 0.0
    batch_tokens: int = 8192
    beam_memory: Literal["flattened", "reordered"] = "flattened"
    average: int = 1
    average_of: Literal["last", "best"] = "last"
    ensemble: tuple[str, ...] = ()
    combine: Literal["linear", "log_linear", "weights"] = "linear"

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(DecodeConfig).items():
            value, choices = getattr(self, name), get_args(hint)
            if get_origin(hint) is Literal and value not in choices:
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
        self._check_choice()
        if len(set(self.ensemble)) < len(self.ensemble):
            raise ValueError(f"decode.ensemble={list(self.ensemble)} names a run twice; name each once")
        if self.combine != "linear" and not self.ensemble:
            raise ValueError(f"decode.combine={self.combine} is of decode.ensemble; name its runs, or leave it linear")

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

    def _check_choice(self) -> None:
        if 0 < self.draws < self.n_best:
            raise ValueError(f"decode.draws={self.draws} gives no n_best={self.n_best}; set decode.draws={self.n_best}")
        if self.choose == "mbr" and self.hypotheses == 1:
            remedy = "decode.beam=8 or more" if self.search == "beam" else "decode.draws=32"
            raise ValueError(
                f"decode.choose=mbr compares translations of a sentence, and there is one; set {remedy}, or "
                "decode.choose=likeliest"
            )
        if self.choose == "likeliest" and self.utility != "chrf":
            raise ValueError(f"decode.utility={self.utility} is of decode.choose=mbr; set that, or leave it chrf")

    @property
    def hypotheses(self) -> int:
        """Hypotheses of a sentence that are decoded together."""
        return self.beam if self.search == "beam" else self.draws or self.n_best

    @property
    def candidates(self) -> int:
        """Hypotheses of a sentence from which `n_best` are chosen after the search."""
        return self.hypotheses if self.choose == "mbr" else self.n_best

    @property
    def depends_on_batch(self) -> bool:
        """True if the rest of its batch can change a translation by more than the last bits of a float32."""
        return self.rounds or self.capacity_factor > 0

    @property
    def rounds(self) -> bool:
        """True if the precision turns the last bits of a float32 into larger differences."""
        return self.precision in ("bf16", "int8")

    def decisive(self, with_ensemble: bool = False) -> dict[str, Any]:
        """Return the settings that can change a translation, without those of DECODE_UNSET.

        with_ensemble: True if the models of `ensemble` take part. Their weights decide, and not their names.
        """
        excluded = {"ensemble", *(() if with_ensemble else ("combine",))}
        settings = decisive_decoding(asdict(self))
        excluded |= {key for key, value in DECODE_UNSET.items() if settings[key] == value}
        return {key: value for key, value in settings.items() if key not in excluded}

    @property
    def averaged_rule(self) -> str:
        """The setting of train.checkpoints that keeps the checkpoints to average."""
        return "last_n" if self.average_of == "last" else "best_k"


def with_neutral(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return changes of settings, with neutral values of those that have no effect after them.

    A recorded `utility`, for example, has no effect any more where `choose` becomes likeliest. A setting that is itself
    among the changes stays as it is, so that a contradiction is still an error.
    """
    neutral: dict[str, Any] = {}
    if changes.get("search") == "beam":
        neutral |= SAMPLING_DEFAULTS
    if changes.get("choose") == "likeliest":
        neutral["utility"] = DECODE_UNSET["utility"]
    if "ensemble" in changes and not changes["ensemble"]:
        neutral["combine"] = DECODE_UNSET["combine"]
    return {**neutral, **changes}
