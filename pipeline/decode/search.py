"""From encoded sentences to hypotheses: what every way of searching shares."""

from collections.abc import Sequence
from typing import Protocol

import torch

from pipeline.decode.bans import NEVER
from pipeline.decode.beam import BeamSearch
from pipeline.decode.config import DecodeConfig
from pipeline.decode.hypothesis import Hypothesis, Request, check, length_penalty, max_length
from pipeline.decode.sample import Sampling
from pipeline.model.moe.drops import DropCount
from pipeline.model.moe.evaluation_capacity import evaluation_capacity
from pipeline.model.transformer import Transformer

__all__ = ["NEVER", "Alone", "DropCount", "Hypothesis", "Peers", "Request", "length_penalty", "max_length", "search"]


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
    model: Transformer,
    requests: Sequence[Request],
    config: DecodeConfig,
    peers: Peers | None = None,
    drops: DropCount | None = None,
) -> list[list[Hypothesis]]:
    """The `n_best` best hypotheses of each sentence, best first. Without requests it is idle with its peers.

    drops: gets added what a capacity of the experts drops (`decode.capacity_factor`).
    Raises ValueError on an empty source and special tokens in a prefix, on a capacity that the model's gates do not
    have, and where no hypothesis has a finite score.
    """
    peers = peers or Alone()
    for request in requests:
        check(request)
    with evaluation_capacity(model.eval(), config.capacity_factor, drops or DropCount()):
        if not peers.any(bool(requests)):
            return []
        if not requests:
            peers.idle(model, decoder=False)
            running = None
        else:
            running = (BeamSearch if config.search == "beam" else Sampling)(model, requests, config)
        while peers.any(running is not None and running.rows.busy):
            if running is not None and running.rows.busy:
                running.step()
            else:
                peers.idle(model, decoder=True)
    return [] if running is None else [found[: config.n_best] for found in running.rows.found]
