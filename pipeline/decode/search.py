"""From encoded sentences to hypotheses: what every way of searching shares."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from pipeline.decode.config import DecodeConfig
from pipeline.model.transformer import Transformer
from pipeline.vocab.symbols import BOS, PAD

NEVER = (BOS, PAD)  # ids that no translation contains


@dataclass(frozen=True, kw_only=True)
class Request:
    """A sentence to translate. source: token ids with tag and `</s>`. prefix: target ids that the translation begins
    with. number: of the sentence in its text, which sampling draws by."""

    source: Sequence[int]
    prefix: Sequence[int] = ()
    number: int = 0


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """tokens: without `</s>`, forced prefix included. score: log-probability, normalised by length."""

    tokens: list[int]
    score: float


class Peers(Protocol):
    """The processes that hold a model's experts between them and so must pass through its layers together."""

    def any(self, busy: bool) -> bool:
        """Whether some process is busy; asked by all of them before each pass."""

    def idle(self, model: Transformer, *, decoder: bool) -> None:
        """Pass through the encoder's or the decoder's layers without a token, for the others' sake."""


class Alone:
    """One process that holds a whole model."""

    def any(self, busy: bool) -> bool:
        return busy

    def idle(self, model: Transformer, *, decoder: bool) -> None:
        raise AssertionError("there is nobody to wait for")


@torch.inference_mode()
def search(
    model: Transformer, requests: Sequence[Request], config: DecodeConfig, peers: Peers | None = None
) -> list[list[Hypothesis]]:
    """The `n_best` best hypotheses of each sentence, best first. Without requests it is idle with its peers."""
    from pipeline.decode.beam import beam_search

    return beam_search(model.eval(), requests, config, peers or Alone())


def length_penalty(length: int, config: DecodeConfig) -> float:
    """What a log-probability of `length` target tokens, `</s>` counted, is divided by."""
    base = (5 + length) / 6 if config.length_norm == "gnmt" else length
    return float(base**config.length_penalty)


def max_length(source_tokens: int, config: DecodeConfig) -> int:
    """Most target tokens, `</s>` counted."""
    return int(config.max_length_ratio * source_tokens) + config.max_length_extra
