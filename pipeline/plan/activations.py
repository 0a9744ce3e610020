"""The activations of one process in a micro-batch: tensors that autograd keeps for backward, and temporary ones.

The formulas follow the modules of `pipeline.model`, and are tested against hooks on saved tensors. They cannot be
counted when a plan is made: the plan is for a GPU, and without one torch takes other kernels, which keep other tensors.

T tokens of a side, S of the other side, M model, H hidden, N heads, D head dim, E experts, X rows of experts,
V vocabulary. All but T, S and M are the share of one process.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from pipeline.model.moe.gates.capacity import router_outputs
from pipeline.plan import products
from pipeline.plan.layers import ROUTER_CHUNK, LayerKind, layer_kinds, logit_chunks, recomputes_logits
from pipeline.plan.parts import FLOAT
from pipeline.plan.products import Sizes
from pipeline.plan.shapes import process_shapes
from pipeline.plan.workload import Setup, Workload

INDEX = 8  # bytes
BLOCK = 1 << 22  # elements of a block of experts' hidden units on a CPU, as in the model's experts


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Bytes that one part of the model needs.

    kept: activations kept from its forward pass to its backward pass.
    again: activations that its backward pass computes again. They exist only while it runs.
    transient: the most that its backward pass holds besides, without the gradients of its parameters.
    cached: copies of weights that a CPU's autocast keeps until the forward pass ends.
    copies: copies of weights in autocast's dtype that a GPU keeps until the weights change.
    gradients: gradients of its own parameters.
    largest: the largest gradients that are made at the same time.
    pending: a gradient that this part begins and that the embedding completes.
    """

    kept: float
    again: float = 0.0
    transient: float = 0.0
    cached: float = 0.0
    copies: float = 0.0
    gradients: float = 0.0
    largest: float = 0.0
    pending: float = 0.0


@cache
def segments(workload: Workload, setup: Setup, kind: str, *, float32_attention: bool) -> tuple[Segment, ...]:
    """Return the parts of the model in the order of the forward pass.

    kind: the device's kind.
    float32_attention: the device computes attention in float32 under bf16 too.
    """
    return tuple(_Process(workload, setup, kind, float32_attention).segments())


class _Process:
    """The activations of one process.

    c: bytes of a number in matrix products.
    scores: bytes of a number that attention keeps.
    mask: bytes of a number in a mask of attention.
    embedding_mask: bytes of a number in the dropout mask of an embedding.
    layer_mask: bytes of a number in the dropout mask of what a layer adds to the residual stream.
    """

    def __init__(self, workload: Workload, setup: Setup, kind: str, float32_attention: bool) -> None:
        self.workload, self.setup, self.model, self.cpu = workload, setup, workload.model, kind == "cpu"
        self.sizes = Sizes.of(workload, setup.layout)
        self.c = FLOAT if workload.precision == "fp32" else 2
        self.bf16 = self.c == 2
        self.scores = FLOAT if float32_attention else self.c
        self.mask = FLOAT if self.cpu else self.c
        has_dropout = self.model.dropout > 0
        self.embedding_mask = has_dropout * (FLOAT if self.cpu else 1)
        self.layer_mask = has_dropout * (self.c if self.cpu else 1)

    def segments(self) -> Iterator[Segment]:
        """Yield the embeddings, layers, norms and logits in the order of the forward pass."""
        shape, M = self.workload.shape, self.sizes.M
        source, target = self.workload.source_tokens, self.workload.target_tokens
        rows, L, T = shape.rows, shape.source, shape.target
        table = FLOAT * self.sizes.v * M
        yield Segment(
            kept=self.embedding_mask * source * M + self.mask * rows * L * L,
            transient=2 * table if self.workload.shared else 0,
            gradients=0 if self.workload.shared else FLOAT * self.sizes.source_v * M,
        )
        yield from self._layers(decoder=False)
        yield Segment(kept=_norm(source, M) + FLOAT * source * M)
        yield Segment(kept=self.embedding_mask * target * M + self.mask * rows * T * (T + L), transient=2 * table)
        yield from self._layers(decoder=True)
        yield Segment(kept=_norm(target, M))
        yield self._logits(target, table)

    def _layers(self, *, decoder: bool) -> Iterator[Segment]:
        kinds = layer_kinds(self.model, self.setup.recompute, decoder=decoder)
        by_kind = {kind: self._layer(kind, 1 + kinds.index(kind)) for kind in set(kinds)}
        yield from (by_kind[kind] for kind in kinds)

    def _layer(self, kind: LayerKind, number: int) -> Segment:
        """Return the segment of a layer. number: the number of a layer of this kind, from 1."""
        tokens = self.workload.source_tokens, self.workload.target_tokens
        S, T = tokens if kind.decoder else tokens[:1] * 2
        M = self.sizes.M
        stream = FLOAT * T * M
        attention, casts = self._attention(T, T, cross=False)
        transient = self.scores * 4 * T * self.sizes.n * self.sizes.D + 3 * stream
        if kind.decoder:
            cross, cross_casts = self._attention(T, S, cross=True)
            attention, casts = attention + cross, casts + cross_casts
        weights = self._weights(f"{'decoder' if kind.decoder else 'encoder'}.layers.{number - 1}.")
        if kind.moe:
            kept, inner, inner_casts = self._moe(T, decoder=kind.decoder)
            largest = sum(sorted(weights)[-2:])
        else:
            hidden = self.c * T * self.sizes.h
            kept, inner, inner_casts = self.c * T * M + hidden, 2 * hidden, 2 * M * self.sizes.h
            largest = max(weights)
        kept += _norm(T, M) + self.layer_mask * T * M
        casts, inner_casts = (2 * casts, 2 * inner_casts) if self.bf16 else (0, 0)
        again = cached = copies = 0.0
        if not self.cpu:
            copies, casts, inner_casts = casts + inner_casts, 0, 0
        if kind.recompute == "everything":
            again, cached, kept = attention + kept - stream, casts + inner_casts, stream
        elif kind.recompute == "attention":
            again, cached, kept = attention - stream, casts, stream + kept + inner_casts
        else:
            kept += attention + casts + inner_casts
        return Segment(
            kept=kept,
            again=again,
            transient=max(transient, inner + 2 * stream),
            cached=cached,
            copies=copies,
            gradients=sum(weights),
            largest=largest,
        )

    def _weights(self, prefix: str) -> list[int]:
        """Return the bytes of each parameter of this process whose name begins so."""
        shapes = process_shapes(self.workload, self.setup.layout)
        return [FLOAT * shape.elements for shape in shapes if shape.name.startswith(prefix)]

    def _attention(self, T: int, S: int, *, cross: bool) -> tuple[float, int]:
        """Return the bytes that attention keeps with its norm and dropout, and the elements of its weights."""
        M, heads = self.sizes.M, self.sizes.n * self.sizes.D
        entered_once = self.setup.layout.axis("N") is not None or not self.cpu
        inputs = T
        if self.bf16 and cross:  # a layer has its own cast of the memory
            inputs = T + (S if entered_once else 2 * S)  # a CPU's autocast casts for each product
        elif self.bf16 and not entered_once:
            inputs = 3 * T
        kept = self.c * inputs * M + self.scores * (2 * T + 2 * S) * heads + FLOAT * T * self.sizes.n
        if self.scores != self.c:
            kept += self.c * T * heads
        elif self.bf16 and self.cpu:
            kept += self.c * T * S // self.workload.shape.rows  # autocast casts the mask, too
        return _norm(T, M) + kept + self.layer_mask * T * M, 4 * M * heads

    def _moe(self, T: int, *, decoder: bool) -> tuple[float, float, int]:
        """Return the bytes kept without norm and dropout, the temporary bytes, and the elements of weights cast."""
        sizes, moe, layout = self.sizes, self.model.moe, self.setup.layout
        gate = moe.gate_of(decoder=decoder)
        rows = products.expert_rows(self.model, gate, T)
        chosen = T * math.ceil(gate.experts_per_token)
        kept: float = FLOAT * T * sizes.M  # the router is float32
        if T * moe.num_experts <= ROUTER_CHUNK:
            kept += FLOAT * T * router_outputs(gate, moe.num_experts)
        kept += chosen * (3 * FLOAT + 2 * INDEX) + T * INDEX + rows * (INDEX + FLOAT)
        axis = layout.axis("E")
        own_rows = rows if axis is None or layout.handed_over else rows / layout.sizes[axis]
        hidden, exchanged = self.c * own_rows * sizes.eh, self.c * rows * sizes.M
        kept += 2 * exchanged + hidden
        if moe.dispatch == "einsum":
            kept += 2 * self.c * T * rows
        if moe.conditional is not None:
            kept += self.c * T * (sizes.h + 2 * sizes.M)
        block = max(FLOAT * BLOCK, hidden / sizes.e)
        transient = 2 * exchanged + (min(hidden, block) if self.cpu else 2 * hidden)
        return kept, transient, 0 if self.cpu else 2 * sizes.e * sizes.M * sizes.eh

    def _logits(self, T: int, table: float) -> Segment:
        V, M = self.sizes.v, self.sizes.M
        chunks = logit_chunks(self.workload, self.setup)
        chunk = FLOAT * chunks[0] * V
        again = recomputes_logits(self.workload, self.setup)
        casts = 2 * V * M if self.bf16 else 0
        # Every chunk after the first adds a gradient of the table, while the logits that were kept may be gone.
        freed = 0.0 if again else self.c * chunks[0] * V
        transient = max(chunk, 2 * table - freed) if len(chunks) > 1 else max(chunk, table)
        return Segment(
            kept=self.c * T * M + (0 if again else self.c * T * V + (casts if self.cpu else 0)),
            again=chunk if again else 0.0,
            transient=transient + (chunk / 2 if self.bf16 else 0),
            cached=casts if again and self.cpu else 0,
            copies=0 if self.cpu else casts,
            pending=table,
        )


def _norm(T: int, M: int) -> float:
    """Return the bytes that a norm keeps: its input, mean and deviation."""
    return FLOAT * T * (M + 2)
