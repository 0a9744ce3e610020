"""The search for translations of encoded sentences, by beam search or sampling."""

from collections.abc import Sequence
from typing import Protocol

import torch

from pipeline.decode.config import DecodeConfig
from pipeline.decode.search.bans import NEVER
from pipeline.decode.search.beam import BeamSearch
from pipeline.decode.search.ensemble import Ensemble, members_of
from pipeline.decode.search.hypothesis import Hypothesis, Request, check, length_penalty, max_length
from pipeline.decode.search.sample import Sampling
from pipeline.model.moe.drops import DropCount
from pipeline.model.moe.evaluation_capacity import evaluation_capacity
from pipeline.model.transformer import Transformer

__all__ = ["NEVER", "Alone", "DropCount", "Hypothesis", "Peers", "Request", "length_penalty", "max_length", "search"]


class Peers(Protocol):
    """Processes that share a model's experts, and so must run its layers at the same time."""

    def any(self, busy: bool) -> bool:
        """Tell if any process is busy. All of them call this before each pass through the layers."""

    def idle(self, model: Transformer, *, decoder: bool) -> None:
        """Run the layers of the encoder or the decoder without tokens, so that other processes reach the experts."""

    def leave(self) -> None:
        """Make the others raise Stopped where they next call `any`, because this process has failed between passes."""


class Alone:
    """A process that holds the whole model, and so waits for no other."""

    def any(self, busy: bool) -> bool:
        return busy

    def idle(self, model: Transformer, *, decoder: bool) -> None:
        raise AssertionError("there is nobody to wait for")

    def leave(self) -> None:
        pass


@torch.inference_mode()
def search(
    model: Transformer | Ensemble,
    requests: Sequence[Request],
    config: DecodeConfig,
    peers: Peers | None = None,
    drops: DropCount | None = None,
) -> list[list[Hypothesis]]:
    """Return the `candidates` best hypotheses of each sentence, in the order of their scores.

    peers: processes that share a single model's experts with this one. Without requests it is idle until they are done.
    drops: counter of the choices that a capacity of the experts (`decode.capacity_factor`) drops.
    Raises ValueError if a source is empty, a prefix has special tokens, the model's gates have no such capacity, or a
    sentence has no hypothesis with a finite score.
    """
    peers, single = peers or Alone(), members_of(model)[0]  # an ensemble has no peers
    for request in requests:
        check(request)
    with evaluation_capacity(model.eval(), config.capacity_factor, drops or DropCount()):
        if not peers.any(bool(requests)):
            return []
        if not requests:
            peers.idle(single, decoder=False)
            running = None
        else:
            running = (BeamSearch if config.search == "beam" else Sampling)(model, requests, config)
        while peers.any(running is not None and running.rows.busy):
            if running is not None and running.rows.busy:
                running.step()
            else:
                peers.idle(single, decoder=True)
    return [] if running is None else [hypotheses[: config.candidates] for hypotheses in running.rows.finished]
