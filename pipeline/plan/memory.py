"""The most memory that one process of a training run holds, by what it holds then.

The peak is a maximum over the phases of a step, not a sum over tensors: gradients come while activations go, and ZeRO's
copies of gradients when there are no activations. DeepSpeed 0.19.8 (zero/stage_1_and_2.py) keeps float32 masters of
this process's partition beside the weights, in float32 training too, and reduces gradients in a buffer of their size
(`BUCKET` at most). ZeRO-1 has all gradients from the first micro-batch to the last; ZeRO-2 has those of its partition.
"""

from dataclasses import dataclass, replace

from pipeline.parallel.config import BUCKET
from pipeline.plan.activations import Segment, segments
from pipeline.plan.parts import FLOAT, LOGITS_CHUNK, LOGITS_TOKENS
from pipeline.plan.shapes import shapes
from pipeline.plan.workload import Device, Setup, Workload

# What a CPU's heap, which gives nothing back, loses to holes: a share of the activations, and one of the weights. They
# are means; the same run differs by up to a tenth. Measured on configurations that bench/plan's table does not contain.
# ZeRO-2 reduces after every micro-batch, in between activations: four such gave 1.8 of the weights more, -0.3 to 3.7.
HOLES_ACTIVATIONS = 0.3
HOLES_WEIGHTS = {1: 0.5, 2: 2.3}  # by ZeRO stage


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes at the peak. phase: of a step, in which it comes. optimizer: masters, moments and average. buffers: of
    collectives, and whatever lives for a moment only. resident: of the process before there is any model."""

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
    """Bytes of one process, in float32. held: weights. partition: of which it has the masters; group: the largest part
    of it that is updated at once. copied: of gradients that are reduced at once, where ZeRO joins them in one tensor
    to that end. optimizer: masters, moments and average. update: what the optimizer has for a moment."""

    held: float
    partition: float
    group: float
    copied: float
    optimizer: float
    update: float


def memory(workload: Workload, setup: Setup, device: Device) -> Memory:
    """At the peak of a step, from the second one on."""
    found = phases(workload, setup, device)
    most = max(found, key=lambda phase: phase.total)
    return most if device.kind != "cpu" else _in_heap(found, workload, setup)


def phases(workload: Workload, setup: Setup, device: Device) -> list[Memory]:
    """The most that lives at once, phase by phase."""
    state, zero1 = state_of(workload, setup), setup.zero_stage == 1
    accumulated = setup.accumulation(workload) > 1
    bucket = min(FLOAT * BUCKET, state.held)
    partition, shared = state.partition, state.partition < state.held
    none = Memory(
        phase="",
        weights=state.held,
        gradients=0.0,
        optimizer=state.optimizer,
        activations=0.0,
        buffers=0.0,
        resident=device.resident,
        available=device.memory,
    )
    earlier = 0.0 if not accumulated else state.held if zero1 else partition
    parts = segments(workload, setup, device.kind, float32_attention=device.float32_attention)
    kept = sum(part.kept for part in parts)
    chunk = FLOAT * _chunk(workload, setup)
    casts = sum(part.cached for part in parts) + (chunk / 2 if workload.precision == "bf16" else 0)
    forward = replace(
        none,
        phase="forward",
        gradients=earlier,
        activations=kept + parts[-1].again,
        buffers=max(chunk + casts, parts[-1].transient) + (bucket if accumulated and zero1 else 0),
    )
    joined = max(partition, state.copied)
    update = state.group + state.update + (bucket if zero1 and shared else 0)
    return [
        forward,
        *(
            replace(none, phase="backward", gradients=g + earlier, activations=a, buffers=b + bucket)
            for a, g, b in backward(parts, fresh=zero1 and not accumulated)[1:]
        ),
        replace(none, phase="reduction", gradients=state.held, buffers=max(bucket, joined)),
        replace(none, phase="optimizer", gradients=partition, buffers=update),
    ]


def backward(parts: list[Segment], *, fresh: bool) -> list[tuple[float, float, float]]:
    """Activations, gradients and temporaries in each part, from the last to the first. fresh: whether gradients stay,
    since there were none before."""
    found, kept, gradients, pending = [], sum(part.kept for part in parts), 0.0, 0.0
    for part in reversed(parts):
        found.append((kept + part.again, gradients + pending, part.transient + part.largest))
        kept, pending = kept - part.kept, pending + part.pending
        gradients += part.gradients if fresh else 0.0
    return found


def state_of(workload: Workload, setup: Setup) -> State:
    """Weights, and what ZeRO and the optimizer keep of them."""
    layout, adafactor = setup.layout, workload.optimizer == "adafactor"
    tensors = [shape.part(layout) for shape in shapes(workload)]
    common, experts = layout.parts(layout.batch_axes), layout.parts(layout.expert_copies)
    groups = [
        (sum(t.elements for t in tensors if not t.expert and len(t.sizes) > 1), common),
        (sum(t.elements for t in tensors if not t.expert and len(t.sizes) == 1), common),
        (sum(t.elements for t in tensors if t.expert), experts),
    ]
    own = [FLOAT * -(-elements // over) for elements, over in groups]
    partition = float(sum(own))
    optimizer = partition * (2 if workload.ema else 1)
    optimizer += (
        own[1] + FLOAT * sum(shape.factors(layout) for shape in shapes(workload)) if adafactor else 2 * partition
    )
    joined = [groups[0][0] + groups[1][0] if common > 1 else 0, groups[2][0] if experts > 1 else 0]
    return State(
        held=FLOAT * float(sum(t.elements for t in tensors)),
        partition=partition,
        group=float(max(own)),
        copied=FLOAT * float(max(joined)),
        optimizer=float(optimizer),
        update=FLOAT * float(max(t.elements for t in tensors)) if adafactor else 0.0,
    )


def _chunk(workload: Workload, setup: Setup) -> int:
    """Logits that there are at once."""
    tokens, axis = workload.shape.rows * workload.shape.target, setup.layout.axis("V")
    V = workload.target_vocabulary // (setup.layout.sizes[axis] if axis else 1)
    size = max(LOGITS_TOKENS, LOGITS_CHUNK // V)
    return V * -(-tokens // -(-tokens // size))


def _in_heap(found: list[Memory], workload: Workload, setup: Setup) -> Memory:
    """On a CPU freed memory stays with the process, and the large copies of gradients that ZeRO makes after backward
    fit into no hole that activations left: phases add up."""
    most = max(found, key=lambda phase: phase.total)
    state = state_of(workload, setup)
    after = state.copied + state.partition + state.group
    holes = HOLES_ACTIVATIONS * most.activations + HOLES_WEIGHTS[setup.zero_stage] * state.held
    return replace(most, buffers=most.buffers + after + holes)
