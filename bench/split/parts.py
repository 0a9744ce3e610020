"""Marks for the profiler around the parts of a training step, and the time of each part in a profile.

A mark costs microseconds, so only this benchmark sets them. Operations belong to the innermost mark. Those of backward
belong to the mark in which the forward operation ran that made their node: both have one sequence number.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any

from torch.profiler import record_function

from pipeline.model.feed_forward import FeedForward
from pipeline.model.moe.layer import MoE
from pipeline.model.transformer import Layer, Transformer

PARTS = ("embedding", "attention", "dense", "gate", "dispatch", "all_to_all", "experts", "logits", "optimizer")
OTHER = "other"
MARK = "part of a step: "
NODE = "autograd::engine::evaluate_function: "
ACCUMULATE = NODE + "torch::autograd::AccumulateGrad"  # adds gradients up, and hands them to ZeRO


def marked(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with a mark."""
    assert part in PARTS, part

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with record_function(MARK + part):
            return function(*args, **kwargs)

    return run


def mark(model: Transformer, engine: Any) -> None:
    """Mark the parts of a model and its engine. Of a MoE layer all is dispatch that is not in a part inside."""

    def put(part: str, owner: Any, name: str) -> None:
        setattr(owner, name, marked(part, getattr(owner, name)))

    for module in model.modules():
        if isinstance(module, Layer):
            put("attention", module, "_attend")
            if isinstance(module.feed_forward, FeedForward):
                put("dense", module, "_feed_forward")
        if isinstance(module, MoE):
            put("dispatch", module, "forward")
            put("gate", module.router, "forward")
            put("experts", module.experts, "compute")
            if module.experts.exchange is not None:
                put("all_to_all", module.experts, "exchange")
    put("embedding", model, "embed")
    put("logits", model, "token_losses")
    put("optimizer", engine, "step")


def seconds_by_part(events: Iterable[Any]) -> dict[str, float]:
    """Return the seconds of each part and of all others, of the GPU if it did anything, else of the processor."""
    operations = list(assigned(events))
    on_device = any(event.self_device_time_total for event, _ in operations)
    seconds = dict.fromkeys((*PARTS, OTHER), 0.0)
    for event, part in operations:
        seconds[part] += (event.self_device_time_total if on_device else event.self_cpu_time_total) / 1e6
    return seconds


def assigned(events: Iterable[Any]) -> Iterator[tuple[Any, str]]:
    """Yield each operation of the host with its part."""
    operations = [event for event in events if event.device_type.name == "CPU"]
    nodes: dict[tuple[int, int], str] = {}  # by the thread of the forward pass and the sequence number
    for event in sorted(operations, key=lambda event: event.time_range.start):
        if event.sequence_nr >= 0 and not is_backward(event):
            nodes[event.thread, event.sequence_nr] = part_of(event, {})  # the last one makes the node
    for event in operations:
        yield event, part_of(event, nodes)


def is_backward(event: Any) -> bool:
    return any(up.name.startswith(NODE) for up in upwards(event))


def part_of(event: Any, nodes: dict[tuple[int, int], str]) -> str:
    """Return the part of an operation, of the forward pass or of backward."""
    for up in upwards(event):
        if up.name == ACCUMULATE:
            return "optimizer"
        if up.name.startswith(NODE):
            return nodes.get((up.fwd_thread, up.sequence_nr), OTHER)
        if up.name.startswith(MARK):
            return str(up.name.removeprefix(MARK))
    return OTHER


def upwards(event: Any) -> Iterator[Any]:
    """Yield an event and those around it, from the inside."""
    while event is not None:
        yield event
        event = event.cpu_parent
