"""The most memory that one process of a training run holds, and the parts of it.

The peak is a maximum over the phases of a step, not a sum over tensors: gradients appear while activations are freed,
and ZeRO copies gradients when no activations are left. DeepSpeed 0.19.8 (zero/stage_1_and_2.py) keeps float32 masters
of this process's partition besides the weights, in float32 training too, and reduces gradients in a buffer of their
size (`BUCKET` at most). ZeRO-1 holds all gradients from the first micro-batch to the last, ZeRO-2 those of its
partition.
"""

from dataclasses import dataclass, replace
from functools import cache

from pipeline.engine import BUCKET
from pipeline.plan.activations import Segment, segments
from pipeline.plan.layers import logit_chunks, process_vocabulary, recomputes_logits
from pipeline.plan.parts import FLOAT
from pipeline.plan.shapes import optimizer_groups, process_shapes, trained_shapes
from pipeline.plan.workload import Device, Setup, Workload

# A CPU's heap gives nothing back, and loses memory to holes: a share of the activations and one of the weights. The
# shares are means; the same run differs by up to a tenth. They were measured on configurations that are not in the
# table of bench/plan. ZeRO-2 reduces between the activations of two micro-batches: four such runs lost 1.8 times the
# weights more, from -0.3 to 3.7.
HOLES_ACTIVATIONS = 0.3
HOLES_WEIGHTS = {1: 0.5, 2: 2.3}  # by ZeRO stage


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes of one process at the peak.

    phase: the phase of a step in which the peak is.
    optimizer: masters, moments and average.
    buffers: buffers of collectives, and temporary tensors.
    resident: memory of the process before a model exists.
    available: memory of the device.
    """

    phase: str
    weights: float
    gradients: float
    optimizer: float
    activations: float
    buffers: float
    resident: float
    available: float

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimizer + self.activations + self.buffers + self.resident

    @property
    def fits(self) -> bool:
        return self.total <= self.available


@dataclass(frozen=True, kw_only=True)
class State:
    """Bytes of one process between micro-batches, all in float32.

    weights: its part of the parameters.
    trained: the weights that train, which is also the size of their gradients.
    partition: the share of these that it updates, and has masters of.
    group: the largest part of the partition that is updated at once.
    copied: gradients that are reduced at once, if ZeRO copies them into one tensor for that.
    optimizer: masters, moments and average.
    update: temporary tensors of the optimizer.
    """

    weights: float
    trained: float
    partition: float
    group: float
    copied: float
    optimizer: float
    update: float


def memory(workload: Workload, setup: Setup, device: Device) -> Memory:
    """Return the memory at the peak of a step, from the second step on."""
    by_phase = phases(workload, setup, device)
    peak = max(by_phase, key=lambda phase: phase.total)
    return peak if device.kind != "cpu" else _in_heap(peak, workload, setup)


def phases(workload: Workload, setup: Setup, device: Device) -> list[Memory]:
    """Return the most memory that each phase of a step holds at once."""
    state, zero1 = state_of(workload, setup), setup.zero_stage == 1
    accumulated = setup.accumulation(workload) > 1
    bucket = min(FLOAT * BUCKET, state.trained)
    partition, is_shared = state.partition, state.partition < state.trained
    idle = Memory(
        phase="",
        weights=state.weights,
        gradients=0.0,
        optimizer=state.optimizer,
        activations=0.0,
        buffers=0.0,
        resident=device.resident,
        available=device.memory,
    )
    earlier = 0.0 if not accumulated else state.trained if zero1 else partition
    parts = segments(workload, setup, device.kind, float32_attention=device.float32_attention)
    kept = sum(part.kept for part in parts)
    chunk = FLOAT * logit_chunks(workload, setup)[0] * process_vocabulary(workload, setup)
    copies = sum(part.copies for part in parts)
    logits = chunk + sum(part.cached for part in parts)
    if workload.precision == "bf16":  # logits exist in 16 bits, in float32, and as exponentials
        logits += chunk / 2 if recomputes_logits(workload, setup) else chunk
    forward = replace(
        idle,
        phase="forward",
        gradients=earlier,
        activations=kept + parts[-1].again,
        buffers=copies + max(logits, parts[-1].transient) + (bucket if accumulated and zero1 else 0),
    )
    joined = max(partition, state.copied)
    update = state.group + state.update + (bucket if zero1 and is_shared else 0)
    return [
        forward,
        *(
            replace(idle, phase="backward", gradients=g + earlier, activations=a, buffers=b + bucket + copies)
            for a, g, b in backward(parts, fresh=zero1 and not accumulated)[1:]
        ),
        replace(idle, phase="reduction", gradients=state.trained, buffers=max(bucket, joined)),
        replace(idle, phase="optimizer", gradients=partition, buffers=update),
    ]


def backward(parts: tuple[Segment, ...], *, fresh: bool) -> list[tuple[float, float, float]]:
    """Return activations, gradients and temporaries while each part runs backward, from the last part to the first.

    fresh: gradients are new and stay, since there were none before.
    """
    moments, kept, gradients, pending = [], sum(part.kept for part in parts), 0.0, 0.0
    for part in reversed(parts):
        moments.append((kept + part.again, gradients + pending, part.transient + part.largest))
        kept, pending = kept - part.kept, pending + part.pending
        gradients += part.gradients if fresh else 0.0
    return moments


@cache
def state_of(workload: Workload, setup: Setup) -> State:
    """Return the weights of one process, and what ZeRO and the optimizer keep for them."""
    layout, kind = setup.layout, workload.optimizer_kind
    tensors = trained_shapes(workload, layout)
    common, experts = layout.parts(layout.batch_axes), layout.parts(layout.expert_copies)
    sizes = {group: sum(t.elements for t in members) for group, members in optimizer_groups(workload, layout)}
    own = {group: FLOAT * -(-size // (experts if group.expert else common)) for group, size in sizes.items()}
    partition = float(sum(own.values()))
    vectors = sum(size for group, size in own.items() if group.vector and not group.expert)
    optimizer = partition * (2 if workload.ema else 1)
    # Adafactor reads a bias of each expert as a matrix with one row
    optimizer += len(kind.moments) * (vectors if kind.factored else partition)
    optimizer += FLOAT * sum(shape.factors(layout) for shape in trained_shapes(workload)) if kind.factored else 0
    reduced = {expert: sum(size for group, size in sizes.items() if group.expert == expert) for expert in (False, True)}
    joined = [reduced[False] if common > 1 else 0, reduced[True] if experts > 1 else 0]
    return State(
        weights=FLOAT * float(sum(t.elements for t in process_shapes(workload, layout))),
        trained=FLOAT * float(sum(t.elements for t in tensors)),
        partition=partition,
        group=float(max(own.values())),
        copied=FLOAT * float(max(joined)),
        optimizer=float(optimizer),
        update=FLOAT * float(kind.temporaries * max(t.elements for t in tensors)),
    )


def _in_heap(peak: Memory, workload: Workload, setup: Setup) -> Memory:
    """Add what a CPU's heap holds besides the peak.

    Memory that is freed stays with the process. The large copies of gradients that ZeRO makes after backward fit into
    no hole that activations left, so phases add up.
    """
    state = state_of(workload, setup)
    after = state.copied + state.partition + state.group
    holes = HOLES_ACTIVATIONS * peak.activations + HOLES_WEIGHTS[setup.zero_stage] * state.weights
    return replace(peak, buffers=peak.buffers + after + holes)
