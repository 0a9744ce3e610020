"""What autograd keeps of one micro-batch, part by part in the order of the forward pass, on one process.

From what the modules of `pipeline.model` save for backward (tested against hooks on saved tensors). T tokens of a side,
S of the other side, M model, H hidden, N heads, D head dim, E experts, X rows of experts, V vocabulary; H, N, D·N, E, X
and V are one process's share.
"""

import math
from dataclasses import dataclass

from pipeline.model.config import Recompute
from pipeline.model.gate_config import GateConfig
from pipeline.plan.workload import Setup, Workload

LOGITS = 1 << 23  # at a time, as `pipeline.model.loss` cuts them
LOGITS_TOKENS = 1024
ROUTER_LOGITS = 1 << 20  # as `pipeline.model.router_chunks`
FLOAT = 4
INDEX = 8


@dataclass(frozen=True, kw_only=True)
class Segment:
    """One part of the model. Bytes.

    kept: from its forward pass to its backward pass. again: there only while its backward pass runs, because that
    computes it again. transient: beside those the most at once in its backward pass. casts: copies of weights in bf16.
    gradients: of its own parameters. largest: of one of them.
    """

    part: str
    kept: float
    again: float = 0.0
    transient: float = 0.0
    casts: float = 0.0
    gradients: float = 0.0
    largest: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Shares of one process, and bytes of an element: compute, of what matmuls read; scores, of what attention does;
    drop, of a dropout mask of the residual stream, and mask, of one of what is added to it."""

    dim: int
    hidden: int
    expert_hidden: int
    heads: int
    keys: int
    source_vocabulary: int
    target_vocabulary: int
    compute: int
    scores: int
    drop: int
    mask: int
    cpu: bool
    entered_once: bool

    @classmethod
    def of(cls, workload: Workload, setup: Setup, kind: str) -> "Sizes":
        """kind: of device."""
        model, cpu = workload.model, kind == "cpu"
        parts = {letter: _parts(setup, letter) for letter in "HNV"}
        compute = 2 if workload.precision == "bf16" else FLOAT
        dropped = model.dropout > 0
        return cls(
            dim=model.dim,
            hidden=model.ffn_dim // parts["H"],
            expert_hidden=model.moe.expert_dim // parts["H"],
            heads=model.heads // parts["N"],
            keys=model.heads * model.key_dim // parts["N"],
            source_vocabulary=workload.source_vocabulary // parts["V"],
            target_vocabulary=workload.target_vocabulary // parts["V"],
            compute=compute,
            scores=FLOAT if cpu else compute,
            drop=dropped * (FLOAT if cpu else 1),
            mask=dropped * (compute if cpu else 1),
            cpu=cpu,
            entered_once=parts["N"] > 1,
        )


def segments(workload: Workload, setup: Setup, kind: str) -> list[Segment]:
    """kind: of device."""
    model, shape = workload.model, workload.shape
    sizes = Sizes.of(workload, setup, kind)
    S, T, M = shape.rows * shape.source, shape.rows * shape.target, model.dim
    masks = FLOAT * shape.rows * (shape.source**2 + shape.target**2 + shape.target * shape.source)
    found = [Segment(part="embedding", kept=sizes.drop * S * M + FLOAT * shape.rows * shape.source**2)]
    found += [_layer(workload, setup, sizes, S, S, decoder=False, index=index) for index in range(model.encoder_layers)]
    found.append(Segment(part="norm", kept=_norm(S, M) + FLOAT * S * M))
    found.append(Segment(part="embedding", kept=sizes.drop * T * M + masks - FLOAT * shape.rows * shape.source**2))
    found += [_layer(workload, setup, sizes, T, S, decoder=True, index=index) for index in range(model.decoder_layers)]
    found.append(Segment(part="norm", kept=_norm(T, M)))
    found.append(_logits(sizes, T, recompute=setup.recompute != "none"))
    return found


def _layer(workload: Workload, setup: Setup, sizes: Sizes, T: int, S: int, *, decoder: bool, index: int) -> Segment:
    """One layer of the encoder (S = T) or decoder."""
    M, model = sizes.dim, workload.model
    attention, attention_casts = _attention(sizes, T, T)
    if decoder:
        cross, cross_casts = _attention(sizes, T, S, cross=True)
        attention, attention_casts = attention + cross, attention_casts + cross_casts
    if model.is_moe(index + 1):
        kept, transient, casts = _moe(workload, setup, sizes, T, decoder=decoder)
        part = "moe"
    else:
        h = sizes.compute * T * sizes.hidden
        kept, transient, casts = sizes.compute * T * M + h, 2 * h, 2 * M * sizes.hidden
        part = "dense"
    kept += _norm(T, M) + sizes.mask * T * M
    casts = 2 * casts + attention_casts if sizes.compute == 2 else 0
    whole = attention + kept
    stream = FLOAT * T * M
    recompute: Recompute = setup.recompute
    if recompute == "all" or (recompute == "layers" and index % 2 == 0):
        return Segment(part=part, kept=stream, again=whole - stream, transient=transient, casts=casts)
    if recompute == "selective":
        return Segment(part=part, kept=kept + stream, again=attention - stream, transient=transient, casts=casts)
    return Segment(part=part, kept=whole, transient=transient, casts=casts)


def _norm(T: int, M: int) -> float:
    """Its input, mean and deviation."""
    return FLOAT * T * (M + 2)


def _attention(sizes: Sizes, T: int, S: int, *, cross: bool = False) -> tuple[float, float]:
    """Kept with its norm and dropout, and casts of weights."""
    M, keys, bf16 = sizes.dim, sizes.keys, sizes.compute == 2
    inputs = T if not bf16 or sizes.entered_once else 3 * T  # autocast casts for each product
    if cross:
        inputs = T if not bf16 else T + (S if sizes.entered_once else 2 * S)
    kept = sizes.compute * inputs * M + sizes.scores * (2 * T + 2 * S) * keys + FLOAT * T * sizes.heads
    if sizes.scores != sizes.compute:
        kept += sizes.compute * T * keys
    return _norm(T, M) + kept + sizes.mask * T * M, 2 * 4 * M * keys


def _moe(workload: Workload, setup: Setup, sizes: Sizes, T: int, *, decoder: bool) -> tuple[float, float, float]:
    """Kept without its norm and dropout; most at once in backward; elements of weights that are cast."""
    M, moe = sizes.dim, workload.model.moe
    gate = moe.gate_of(decoder=decoder)
    rows = expert_rows(gate, T, moe.num_experts)
    chosen = T * math.ceil(gate.experts_per_token)
    kept: float = FLOAT * T * M  # the router is float32
    if T * moe.num_experts <= ROUTER_LOGITS:
        kept += FLOAT * T * moe.num_experts * gate.router_width
    kept += chosen * (3 * FLOAT + 2 * INDEX) + T * INDEX + rows * (INDEX + FLOAT)
    axis = setup.layout.axis("E")
    mine = rows if axis is None or setup.layout.handed_over else rows / setup.layout.sizes[axis]
    hidden = sizes.compute * mine * sizes.expert_hidden
    kept += sizes.compute * 2 * rows * M + hidden
    if moe.dispatch == "einsum":
        kept += 2 * sizes.compute * T * rows
    if moe.conditional is not None:
        kept += sizes.compute * T * (sizes.hidden + 2 * M)
    experts = moe.num_experts // _parts(setup, "E")
    return kept, sizes.compute * 2 * rows * M + hidden, 0 if sizes.cpu else experts * 2 * M * sizes.expert_hidden


def expert_rows(gate: GateConfig, tokens: int, experts: int) -> int:
    """Rows that one group of so many tokens has in all experts together."""
    factor = getattr(gate, "capacity_factor", 0.0)
    if not factor:
        return math.ceil(gate.experts_per_token * tokens)
    k = 1 if gate.kind == "expert_choice" else gate.experts_per_token
    return max(1, math.ceil(factor * k * tokens / experts)) * experts


def _logits(sizes: Sizes, T: int, *, recompute: bool) -> Segment:
    V, M = sizes.target_vocabulary, sizes.dim
    size = max(LOGITS_TOKENS, LOGITS // V)
    chunks = -(-T // size) if size < T else 1
    chunk = FLOAT * -(-T // chunks) * V
    table = FLOAT * V * M  # of several chunks each has a gradient of its own before they are added
    kept = sizes.compute * T * M
    transient = chunk + table + (chunk // 2 if sizes.compute == 2 else 0)
    casts = 2 * V * M if sizes.compute == 2 else 0
    if recompute and chunks > 1:
        return Segment(part="logits", kept=kept, again=chunk, transient=transient, casts=casts)
    return Segment(part="logits", kept=kept + FLOAT * T * V, transient=transient, casts=casts)


def _parts(setup: Setup, letter: str) -> int:
    axis = setup.layout.axis(letter)
    return 1 if axis is None else setup.layout.sizes[axis]
