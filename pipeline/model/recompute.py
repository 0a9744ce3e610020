"""Activation checkpointing: what a forward pass does not keep, backward computes again.

The second computation is the first one over again. Its random draws are, since the generator is put back; its routing
is, since what the router decided is noted and given back, so that a logit which comes out different in its last bit (on
a GPU it may) cannot send a token elsewhere. Statistics are those of the first pass. The all-to-alls of a MoE layer run
twice, in the same order on every process, since all run the same graph.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, Protocol, TypeVar

import torch
from torch.utils.checkpoint import checkpoint

from pipeline.model.decisions import Decisions

Result = TypeVar("Result")


class Deciding(Protocol):
    """Something with a router, which decides under `decisions`."""

    decisions: AbstractContextManager[Any]


def again(function: Callable[..., Result], *args: Any, router: Deciding | None) -> Result:
    """function(*args), of which only `args` are kept for backward; router: whose decisions it contains."""
    if not torch.is_grad_enabled():
        return function(*args)
    noted = Decisions()

    def contexts() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        if router is None:
            return nullcontext(), nullcontext()
        return _Under(router, lambda: noted), _Under(router, lambda: Decisions(noted.noted_N))

    result: Result = checkpoint(function, *args, use_reentrant=False, context_fn=contexts)
    return result


def decided_again(function: Callable[..., Result], *args: Any) -> Result:
    """As `again`, of a part of a router that draws nothing."""
    noted = Decisions()
    result: Result = checkpoint(
        function,
        *args,
        use_reentrant=False,
        preserve_rng_state=False,
        context_fn=lambda: (noted, _Replay(noted)),
    )
    return result


class _Under:
    """A router under decisions that are made on entry: a backward pass may enter more than once."""

    def __init__(self, router: Deciding, decisions: Callable[[], Decisions]) -> None:
        self._router, self._decisions = router, decisions

    def __enter__(self) -> None:
        self._router.decisions = self._decisions()

    def __exit__(self, *_: Any) -> None:
        self._router.decisions = nullcontext()


class _Replay:
    """Noted decisions, from the first one on at every entry."""

    def __init__(self, noted: Decisions) -> None:
        self._noted = noted

    def __enter__(self) -> None:
        self._entered = ExitStack()
        self._entered.enter_context(Decisions(self._noted.noted_N))

    def __exit__(self, *_: Any) -> None:
        self._entered.close()
