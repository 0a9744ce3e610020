"""The activations of one process in a micro-batch: tensors that autograd keeps for backward, and temporary ones.

Frozen weights need fewer activations for backward than is planned here, since their inputs are kept for no gradient.
What adapters keep is added to what the model without them keeps.

The formulas follow the modules of `pipeline.model`, and are tested against hooks on saved tensors. They cannot be
counted when a plan is made: the plan is for a GPU, and without one torch takes other kernels, which keep other tensors.

T tokens of a side, S of the other side, M model, H hidden, N heads, D head dim, E experts, X rows of experts,
V vocabulary, R rank of adapters. All but T, S, M and R are the share of one process.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from pipeline.model.components import is_adapter, is_trainable
from pipeline.model.lora import weight_of
from pipeline.model.moe.gates.capacity import router_outputs
from pipeline.plan import products
from pipeline.plan.layers import ROUTER_CHUNK, LayerKind, layer_kinds, logit_chunks, recomputes_logits
from pipeline.plan.parts import FLOAT
from pipeline.plan.products import Sizes
from pipeline.plan.shapes import process_shapes, trained_shapes
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
    kept_hidden: tensors of hidden units that a network keeps. SwiGLU keeps two projections and their product.
    hidden_backward: such tensors that the backward pass of its activation holds at once.
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
        self.gated = self.model.activation == "swiglu"
        self.kept_hidden, self.hidden_backward = (3, 4) if self.gated else (1, 2)

    def segments(self) -> Iterator[Segment]:
        """Yield the embeddings, layers, norms and logits in the order of the forward pass."""
        shape, M = self.workload.shape, self.sizes.M
        source, target = self.workload.source_tokens, self.workload.target_tokens
        rows, L, T = shape.rows, shape.source, shape.target
        trains = is_trainable("target_embedding_VM", self.workload.trainable)
        table = FLOAT * self.sizes.v * M if trains else 0  # a gradient
        yield Segment(
            kept=self.embedding_mask * source * M + self.mask * rows * L * L,
            transient=2 * table if self.workload.shared else 0,
            gradients=0 if self.workload.shared or not trains else FLOAT * self.sizes.source_v * M,
        )
        yield from self._layers(decoder=False)
        yield Segment(kept=self._norm(source) + FLOAT * source * M)
        yield Segment(kept=self.embedding_mask * target * M + self.mask * rows * T * (T + L), transient=2 * table)
        yield from self._layers(decoder=True)
        yield Segment(kept=self._norm(target))
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
        prefix = f"{'decoder' if kind.decoder else 'encoder'}.layers.{number - 1}."
        attention, casts = self._attention(T, T, prefix, cross=False)
        transient = self.scores * 4 * T * self.sizes.n * self.sizes.D + 3 * stream
        if kind.decoder:
            cross, cross_casts = self._attention(T, S, prefix, cross=True)
            attention, casts = attention + cross, casts + cross_casts
        weights = self._weights(prefix)
        if kind.moe:
            kept, inner, inner_casts = self._moe(T, decoder=kind.decoder)
            # experts with biases are computed one by one: their gradients exist apart and, for a moment, together
            largest = sum(sorted(weights)[-2:]) + (max(weights, default=0) if self.model.biases else 0)
        else:
            hidden = self.c * T * self.sizes.h
            kept, inner = self.c * T * M + self.kept_hidden * hidden, self.hidden_backward * hidden
            inner_casts = self.model.ffn_matrices * M * self.sizes.h
            largest = max(weights, default=0)
        adapters, adapters_casts = self._adapters(f"{prefix}feed_forward.", T, T, "H")
        kept, inner_casts = kept + adapters, inner_casts + adapters_casts
        kept += self._norm(T) + self.layer_mask * T * M
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
        """Return the bytes of each parameter of this process that trains and whose name begins so."""
        shapes = trained_shapes(self.workload, self.setup.layout)
        return [FLOAT * shape.elements for shape in shapes if shape.name.startswith(prefix)]

    def _adapters(self, prefix: str, T: int, S: int, letter: str) -> tuple[float, int]:
        """Return the bytes that the adapters of a module keep, and the elements of their matrices.

        With dropout each adapter keeps its own copy of its inputs. Without it, it has an own cast of them if they come
        from a norm, in float32, and no layout has cast them before.

        prefix: beginning of the names of the module's parameters.
        S: tokens that give keys and values.
        letter: the letter of a layout that cuts the module.
        """
        config = self.workload.adapters
        if config is None:
            return 0.0, 0
        shapes = process_shapes(self.workload, self.setup.layout)
        matrices = [shape for shape in shapes if shape.name.startswith(prefix) and is_adapter(shape.name)]
        kept = 0.0
        for a in (shape for shape in matrices if shape.letters.endswith("R")):
            tokens = S if weight_of(a.name).endswith(("wk_MND", "wv_MND")) else T
            inputs = tokens * a.elements // config.rank
            is_wide = self.bf16 and a.letters == "MR" and self.setup.layout.axis(letter) is None
            if config.dropout:
                kept += inputs * (self.c + ((FLOAT if is_wide else self.c) if self.cpu else 1))
            elif is_wide:
                kept += self.c * inputs
            kept += self.c * tokens * config.rank
        return kept, sum(shape.elements for shape in matrices)

    def _attention(self, T: int, S: int, prefix: str, *, cross: bool) -> tuple[float, int]:
        """Return the bytes that attention keeps with its norm and dropout, and the elements of its weights.

        prefix: of the layer.
        """
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
        name = f"{prefix}{'cross' if cross else 'self'}_attention."
        adapters, adapters_casts = self._adapters(name, T, S, "N")
        return self._norm(T) + kept + adapters + self.layer_mask * T * M, 4 * M * heads + adapters_casts

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
        kept += 2 * exchanged + (sizes.inner if self.cpu else self.kept_hidden) * hidden
        if moe.dispatch == "einsum":
            kept += 2 * self.c * T * rows
        shared = moe.shared_experts * sizes.eh
        if shared:
            casts = sizes.M if self.bf16 else 0  # in float32 the router keeps their input
            kept += self.c * T * (self.kept_hidden * shared + casts)
        if moe.conditional is not None:
            kept += self.c * T * (self.kept_hidden * sizes.h + 2 * sizes.M)
        block = max(FLOAT * BLOCK, hidden / sizes.e)
        in_blocks = min(hidden, block) * (5 if self.gated else 1)
        transient = 2 * exchanged + (in_blocks if self.cpu else self.hidden_backward * hidden)
        in_experts = self.model.ffn_matrices * sizes.M * sizes.e * sizes.eh
        if self.model.biases and self.bf16:
            kept += self.c * in_experts  # plain autograd keeps the casts of a micro-batch
        casts = self.model.ffn_matrices * sizes.M * shared + (0 if self.cpu or self.model.biases else in_experts)
        return kept, transient, casts

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

    def _norm(self, T: int) -> float:
        """Return the bytes that a norm keeps.

        LayerNorm keeps its input, mean and deviation. RMSNorm keeps its input and the root of the mean of squares, and
        without a kernel of its own, as on a CPU, the quotient of both too.
        """
        M = self.sizes.M
        if self.model.norm == "rms":
            return FLOAT * T * ((2 * M if self.cpu else M) + 1)
        return FLOAT * T * (M + 2)
