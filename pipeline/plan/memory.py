"""The most memory that one process of a training run holds, by what it holds then.

The peak is a maximum over the phases of a step, not a sum over tensors: gradients grow while activations shrink, and
ZeRO's copies come when there are no activations. DeepSpeed 0.19.8 (`zero/stage_1_and_2.py`) keeps a float32 master of
this process's partition beside the weights, in float32 training too.
"""

from dataclasses import dataclass

from pipeline.plan.activations import FLOAT, Segment, segments
from pipeline.plan.workload import Device, Setup, Workload

BUCKET = 500_000_000  # elements of the buffer through which ZeRO reduces gradients, DeepSpeed's default


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes at the peak. phase: when it is. optimizer: masters, moments and average. buffers: those of collectives,
    casts of weights, and temporaries. resident: of the process before there is any model."""

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
class Held:
    """Parameters of one process. dense: matrices that every process of the batch has. vectors: norms and the like.
    experts: of experts. factors: rows and columns of all their matrices, what Adafactor keeps. largest: of one
    tensor."""

    dense: int
    vectors: int
    experts: int
    factors: int
    largest: int

    @property
    def total(self) -> int:
        return self.dense + self.vectors + self.experts


def held(workload: Workload, setup: Setup) -> Held:
    """Parameters by how they are optimised, after the layout's cuts."""
    model, moe = workload.model, workload.model.moe
    parts = {letter: _parts(setup, letter) for letter in "EHNV"}
    M, keys, H = model.dim, model.heads * model.key_dim // parts["N"], model.ffn_dim // parts["H"]
    tables = [workload.target_vocabulary // parts["V"]]
    if not workload.shared:
        tables.append(workload.source_vocabulary // parts["V"])
    dense, vectors, experts, factors = M * sum(tables), 4 * M, 0, sum(tables) + M * len(tables)
    largest = M * max(tables)
    for layers, attentions, decoder in ((model.encoder_layers, 1, False), (model.decoder_layers, 2, True)):
        routed = model.num_moe_layers(layers)
        dense += layers * attentions * 4 * M * keys + (layers - routed) * 2 * M * H
        vectors += layers * (attentions + 1) * 2 * M
        factors += layers * attentions * 4 * (M + keys) + (layers - routed) * 2 * (M + H)
        if routed:
            gate = moe.gate_of(decoder=decoder)
            width = gate.router_width * (moe.num_experts + getattr(gate, "groups", 0))
            own, expert_dim = moe.num_experts // parts["E"], moe.expert_dim // parts["H"]
            dense += routed * M * width
            vectors += routed * (moe.num_experts if gate.kind == "balanced" else 0)
            experts += routed * own * 2 * M * expert_dim
            factors += routed * (M + width + own * 2 * (M + expert_dim))
            largest = max(largest, own * M * expert_dim)
            if moe.conditional is not None:
                dense, vectors = dense + routed * 2 * M * H, vectors + routed * M
                factors += routed * 2 * (M + H)
    return Held(dense=dense, vectors=vectors, experts=experts, factors=factors, largest=largest)


def memory(workload: Workload, setup: Setup, device: Device) -> Memory:
    """At the peak of a step, from the second one on."""
    return max(phases(workload, setup, device), key=lambda found: found.total)


def phases(workload: Workload, setup: Setup, device: Device) -> list[Memory]:
    """The most in each phase of a step."""
    own = held(workload, setup)
    layout = setup.layout
    copies, expert_copies = layout.parts(layout.batch_axes), layout.parts(_expert_copies(setup))
    common = -(-(own.dense + own.vectors) // copies)  # of what every process has, this one's partition
    experts = -(-own.experts // expert_copies)
    partition = FLOAT * (common + experts)
    state = partition * (1 + workload.ema)
    state += FLOAT * own.factors + FLOAT * -(-own.vectors // copies) if _adafactor(workload) else 2 * partition
    gradients, zero1 = FLOAT * own.total, setup.zero_stage == 1
    bucket = FLOAT * min(BUCKET, own.total)
    accumulated = setup.accumulation(workload) > 1

    def phase(name: str, *, gradients: float, activations: float, buffers: float) -> Memory:
        return Memory(
            phase=name,
            weights=FLOAT * own.total,
            gradients=gradients,
            optimizer=state,
            activations=activations,
            buffers=buffers,
            resident=device.resident,
            available=device.memory,
        )

    earlier = (gradients if zero1 else partition) if accumulated else 0.0
    kept, beside = backward_peak(segments(workload, setup, device.kind))
    table = FLOAT * workload.model.dim * workload.target_vocabulary // _parts(setup, "V")
    flattened = FLOAT * (own.dense + own.vectors) if copies > 1 else 0
    update = FLOAT * own.largest if _adafactor(workload) else 0
    return [
        phase("backward", gradients=earlier + table, activations=kept, buffers=beside + bucket),
        phase("reduction", gradients=gradients, activations=0, buffers=bucket + max(flattened - partition, 0)),
        phase(
            "optimizer",
            gradients=partition,
            activations=0,
            buffers=FLOAT * max(common, experts) + update + (bucket if zero1 and copies > 1 else 0),
        ),
    ]


def backward_peak(found: list[Segment]) -> tuple[float, float]:
    """Activations, and what is beside them, where the two together are the most during backward."""
    peaks, kept = [], 0.0
    casts = sum(segment.casts for segment in found)
    for segment in found:
        kept += segment.kept
        peaks.append((kept + segment.again, segment.transient + casts))
    return max(peaks, key=sum)


def _adafactor(workload: Workload) -> bool:
    return workload.optimizer == "adafactor"


def _expert_copies(setup: Setup) -> tuple[str, ...]:
    return tuple(axis for axis in setup.layout.batch_axes if axis not in setup.layout.table.get("E", ()))


def _parts(setup: Setup, letter: str) -> int:
    axis = setup.layout.axis(letter)
    return 1 if axis is None else setup.layout.sizes[axis]
