"""Activation checkpointing: backward computes again the activations that a forward pass did not keep.

The second computation repeats the first one exactly:
- Random draws are the same, because the generator's state is restored.
- Routing is the same, because the router's decisions are recorded and replayed. Without that, a logit that differs in
  its last bit, as it may on a GPU, could send a token to another expert.
Statistics are those of the first pass. The all-to-alls of a MoE layer run twice, in the same order on every process,
because all processes run the same graph.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, Protocol, TypeVar

import torch
from torch.utils.checkpoint import checkpoint

from pipeline.model.decisions import Decisions

Result = TypeVar("Result")


class Deciding(Protocol):
    """A module with a router that makes its decisions in the context `decisions`."""

    decisions: AbstractContextManager[Any]


def recomputed(function: Callable[..., Result], *args: Any, router: Deciding | None) -> Result:
    """Return function(*args), keeping only `args` for backward. router: the module that decides inside `function`."""
    if not torch.is_grad_enabled():
        return function(*args)
    decisions = Decisions()

    def contexts() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        if router is None:
            return nullcontext(), nullcontext()
        return _Deciding(router, lambda: decisions), _Deciding(router, lambda: Decisions(decisions.recorded_N))

    result: Result = checkpoint(function, *args, use_reentrant=False, context_fn=contexts)
    return result


def recomputed_choice(function: Callable[..., Result], *args: Any) -> Result:
    """Return function(*args) as `recomputed` does, for a part of a router that draws nothing at random."""
    decisions = Decisions()
    result: Result = checkpoint(
        function,
        *args,
        use_reentrant=False,
        preserve_rng_state=False,
        context_fn=lambda: (decisions, _Replay(decisions)),
    )
    return result


class _Deciding:
    """A context in which a router records or replays decisions. Each entry makes a new `Decisions`.

    A backward pass may enter more than once.
    """

    def __init__(self, router: Deciding, decisions: Callable[[], Decisions]) -> None:
        self._router, self._decisions = router, decisions

    def __enter__(self) -> None:
        self._router.decisions = self._decisions()

    def __exit__(self, *_: Any) -> None:
        self._router.decisions = nullcontext()


class _Replay:
    """A context that replays recorded decisions. Each entry starts at the first decision."""

    def __init__(self, recording: Decisions) -> None:
        self._recording = recording

    def __enter__(self) -> None:
        self._entered = ExitStack()
        self._entered.enter_context(Decisions(self._recording.recorded_N))

    def __exit__(self, *_: Any) -> None:
        self._entered.close()
