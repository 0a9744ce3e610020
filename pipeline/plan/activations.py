"""What one process holds of a micro-batch: tensors that autograd keeps for backward, part by part, and what is beside
them.

Read off the modules of `pipeline.model`, and tested against hooks on saved tensors. T tokens of a side, S of the other
side, M model, H hidden, N heads, D head dim, E experts, X rows of experts, V vocabulary; all but T, S and M are one
process's share.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.plan import products
from pipeline.plan.parts import FLOAT, LOGITS_CHUNK, LOGITS_TOKENS, ROUTER_CHUNK
from pipeline.plan.products import Sizes
from pipeline.plan.shapes import shapes
from pipeline.plan.workload import Setup, Workload

INDEX = 8  # bytes
BLOCK = 1 << 22  # elements of a block of experts' hidden units on a CPU, `pipeline.model.experts`


@dataclass(frozen=True, kw_only=True)
class Segment:
    """One part of the model. Bytes.

    kept: from its forward pass to its backward pass. again: there only while its backward pass runs, because that
    computes it again. transient: beside those the most at once in its backward pass, but for gradients of its
    parameters. cached: copies of weights that autocast makes and keeps to the end of the forward pass only. gradients:
    of its own parameters. largest: of those that come at once. pending: of a gradient that it begins and the embedding
    ends.
    """

    name: str
    kept: float
    again: float = 0.0
    transient: float = 0.0
    cached: float = 0.0
    gradients: float = 0.0
    largest: float = 0.0
    pending: float = 0.0


def segments(workload: Workload, setup: Setup, kind: str, *, float32_attention: bool) -> list[Segment]:
    """The parts of the model in the order of the forward pass; `kind` and `float32_attention` are the device's."""
    return list(_Process(workload, setup, kind, float32_attention).segments())


def tokens_of(workload: Workload) -> tuple[int, int]:
    """Of a group: source and target."""
    return workload.shape.rows * workload.shape.source, workload.shape.rows * workload.shape.target


class _Process:
    """c: bytes of what matrices are multiplied in. scores: of what attention keeps. stream, added: of the dropout mask
    of an embedding, and of what a layer adds to the residual stream."""

    def __init__(self, workload: Workload, setup: Setup, kind: str, float32_attention: bool) -> None:
        self.workload, self.setup, self.model, self.cpu = workload, setup, workload.model, kind == "cpu"
        self.sizes = Sizes.of(workload, setup.layout)
        self.c = FLOAT if workload.precision == "fp32" else 2
        self.bf16 = self.c == 2
        dropped = self.model.dropout > 0
        self.scores = FLOAT if float32_attention else self.c
        self.stream = dropped * (FLOAT if self.cpu else 1)
        self.added = dropped * (self.c if self.cpu else 1)
        self.weights: dict[str, list[int]] = defaultdict(list)  # bytes of this process's parameters, by layer
        for shape in shapes(workload):
            layer = ".".join(shape.name.split(".")[:3]) if ".layers." in shape.name else shape.name.split(".")[0]
            self.weights[layer].append(FLOAT * shape.part(setup.layout).elements)

    def segments(self) -> Iterator[Segment]:
        rows, M = self.workload.shape.rows, self.sizes.M
        source, target = tokens_of(self.workload)
        L, T = self.workload.shape.source, self.workload.shape.target
        tied = "source_embedding_VM" not in self.weights
        table = self.weights["target_embedding_VM"][0]
        yield Segment(
            name="source embedding",
            kept=self.stream * source * M + FLOAT * rows * L * L,
            transient=2 * table if tied else 0,
            gradients=0 if tied else self.weights["source_embedding_VM"][0],
        )
        for index in range(self.model.encoder_layers):
            yield self._layer(f"encoder.layers.{index}", index, source, source, decoder=False)
        yield Segment(name="encoder norm", kept=_norm(source, M) + FLOAT * source * M)
        yield Segment(
            name="target embedding", kept=self.stream * target * M + FLOAT * rows * T * (T + L), transient=2 * table
        )
        for index in range(self.model.decoder_layers):
            yield self._layer(f"decoder.layers.{index}", index, target, source, decoder=True)
        yield Segment(name="decoder norm", kept=_norm(target, M))
        yield self._logits(target, table)

    def _layer(self, name: str, index: int, T: int, S: int, *, decoder: bool) -> Segment:
        M, what = self.sizes.M, self.setup.recompute
        stream = FLOAT * T * M
        attention, casts = self._attention(T, T, cross=False)
        transient = self.scores * 4 * T * self.sizes.n * self.sizes.D + 3 * stream
        if decoder:
            cross, cross_casts = self._attention(T, S, cross=True)
            attention, casts = attention + cross, casts + cross_casts
        if self.model.is_moe(index + 1):
            kept, inner, inner_casts = self._moe(T, decoder=decoder)
            largest = sum(sorted(self.weights[name])[-2:])
        else:
            hidden = self.c * T * self.sizes.h
            kept, inner, inner_casts = self.c * T * M + hidden, 2 * hidden, 2 * M * self.sizes.h
            largest = max(self.weights[name])
        kept += _norm(T, M) + self.added * T * M
        casts, inner_casts = (2 * casts, 2 * inner_casts) if self.bf16 else (0, 0)
        again = cached = 0.0
        if what == "all" or (what == "layers" and index % 2 == 0):
            again, cached, kept = attention + kept - stream, casts + inner_casts, stream
        elif what == "selective":
            again, cached, kept = attention - stream, casts, stream + kept + inner_casts
        else:
            kept += attention + casts + inner_casts
        return Segment(
            name=name,
            kept=kept,
            again=again,
            transient=max(transient, inner + 2 * stream),
            cached=cached,
            gradients=sum(self.weights[name]),
            largest=largest,
        )

    def _attention(self, T: int, S: int, *, cross: bool) -> tuple[float, int]:
        """Kept with its norm and dropout, and elements of weights."""
        M, heads = self.sizes.M, self.sizes.n * self.sizes.D
        entered_once = self.setup.layout.axis("N") is not None
        inputs = T
        if self.bf16 and cross:
            inputs = T + (S if entered_once else 2 * S)  # autocast casts for each product
        elif self.bf16 and not entered_once:
            inputs = 3 * T
        kept = self.c * inputs * M + self.scores * (2 * T + 2 * S) * heads + FLOAT * T * self.sizes.n
        if self.scores != self.c:
            kept += self.c * T * heads
        elif self.bf16:
            kept += self.c * T * S // self.workload.shape.rows  # autocast casts the mask, too
        return _norm(T, M) + kept + self.added * T * M, 4 * M * heads

    def _moe(self, T: int, *, decoder: bool) -> tuple[float, float, int]:
        """Kept without its norm and dropout; transient; elements of weights that are cast."""
        sizes, moe, layout = self.sizes, self.model.moe, self.setup.layout
        gate = moe.gate_of(decoder=decoder)
        rows = products.expert_rows(self.model, gate, T)
        chosen = T * math.ceil(gate.experts_per_token)
        kept: float = FLOAT * T * sizes.M  # the router is float32
        if T * moe.num_experts <= ROUTER_CHUNK:
            kept += FLOAT * T * moe.num_experts * gate.router_width
        kept += chosen * (3 * FLOAT + 2 * INDEX) + T * INDEX + rows * (INDEX + FLOAT)
        axis = layout.axis("E")
        mine = rows if axis is None or layout.handed_over else rows / layout.sizes[axis]
        hidden, passed = self.c * mine * sizes.eh, self.c * rows * sizes.M
        kept += 2 * passed + hidden
        if moe.dispatch == "einsum":
            kept += 2 * self.c * T * rows
        if moe.conditional is not None:
            kept += self.c * T * (sizes.h + 2 * sizes.M)
        block = max(FLOAT * BLOCK, hidden / sizes.e)
        transient = 2 * passed + (min(hidden, block) if self.cpu else 2 * hidden)
        return kept, transient, 0 if self.cpu else 2 * sizes.e * sizes.M * sizes.eh

    def _logits(self, T: int, table: float) -> Segment:
        V, M = self.sizes.v, self.sizes.M
        size = max(LOGITS_TOKENS, LOGITS_CHUNK // V)
        chunks = -(-T // size) if size < T else 1
        chunk = FLOAT * -(-T // chunks) * V
        again = self.setup.recompute != "none" and chunks > 1
        casts = 2 * V * M if self.bf16 else 0
        # gradients of logits where all logits are there yet, or of the table, one more for each chunk after the first
        beside = 0.0 if again else chunk
        transient = max(chunk, 2 * table - beside) if chunks > 1 else max(chunk, table)
        return Segment(
            name="logits",
            kept=self.c * T * M + (0 if again else FLOAT * T * V + casts),
            again=chunk if again else 0.0,
            transient=transient + (chunk / 2 if self.bf16 else 0),
            cached=casts if again else 0,
            pending=table,
        )


def _norm(T: int, M: int) -> float:
    """Its input, mean and deviation."""
    return FLOAT * T * (M + 2)
