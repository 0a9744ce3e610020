"""Configuration of decoding; free of torch so that it loads fast."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """Beam search. beam: hypotheses kept. length_penalty: α of GNMT's ((5 + |Y|) / 6)^α (arXiv:1609.08144, equation
    14).

    max_length_ratio, max_length_extra: a translation ends after ratio · source tokens + extra tokens.
    batch_sentences: sentences decoded together; it changes speed, not translations.
    average: checkpoints whose weights are averaged, 1 takes the best alone; average_of: the last ones or the best ones
    that training kept (train.checkpoints.last_n, best_k).
    """

    beam: int
    length_penalty: float
    max_length_ratio: float = 2.0
    max_length_extra: int = 16
    batch_sentences: int = 64
    average: int = 1
    average_of: Literal["last", "best"] = "last"

    def __post_init__(self) -> None:
        for name in ("beam", "batch_sentences", "max_length_extra", "average"):
            if getattr(self, name) < 1:
                raise ValueError(f"decode.{name}={getattr(self, name)} must be at least 1")
        if self.length_penalty < 0:
            raise ValueError(f"decode.length_penalty={self.length_penalty} must not be negative")
        if not self.max_length_ratio > 0:
            raise ValueError(f"decode.max_length_ratio={self.max_length_ratio} must be positive")

    @property
    def averaged_rule(self) -> str:
        """The rule of train.checkpoints that keeps what is averaged."""
        return "last_n" if self.average_of == "last" else "best_k"
