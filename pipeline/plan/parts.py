"""The work of one process in a step, part by part: the FLOPs that it executes and the bytes that pass through memory.

FLOPs are exactly those that the model executes: experts at capacity, fused attention that computes its scores again in
backward, and whatever `Transformer.recompute` computes again. Bytes are an estimate: every operation reads its inputs
from memory and writes its output there.
"""

from collections import Counter
from collections.abc import Iterator

from pipeline.model.moe.gates.capacity import training_capacity
from pipeline.model.moe.gates.config import GateConfig
from pipeline.plan import products
from pipeline.plan.layers import ROUTER_CHUNK, LayerKind, layer_kinds, recomputes_logits
from pipeline.plan.products import Product, Sizes
from pipeline.plan.shapes import trained_shapes
from pipeline.plan.workload import Setup, Work, Workload

FLOAT = 4  # bytes of a weight, of the residual stream and of everything in a router
TRAINING = 3  # forward, gradient to inputs, gradient to weights
# Accesses of each hidden unit, and kernels, in a pass through the activation: ReLU reads and writes; SwiGLU reads and
# writes for SiLU, reads two tensors and writes one for the product, and its backward pass has as many on average.
ACTIVATION = {"relu": (2, 1), "swiglu": (5, 2)}
FUSED = 3.5  # forward, and five products for two in backward, which computes scores again


def micro_batch(workload: Workload, setup: Setup) -> list[Work]:
    """Return the work of one group, forward and backward.

    A part has several entries if some of its operations are bound by FLOPs and others by memory.
    """
    process = _Process(workload, setup)
    works = [*process.embedding()]
    for decoder in (False, True):
        for kind, count in Counter(layer_kinds(workload.model, setup.recompute, decoder=decoder)).items():
            works += [times(work, count) for work in process.layer(kind)]
    return [*works, *process.logits(again=recomputes_logits(workload, setup))]


def optimizer(workload: Workload, setup: Setup) -> Work:
    """Return the work of one update under ZeRO-1 or 2.

    Gradients of micro-batches are added up and made ready to travel. Then this process's share of the parameters is
    updated.
    """
    layout, accumulation = setup.layout, setup.accumulation(workload)
    tensors = trained_shapes(workload, layout)
    elements = float(sum(tensor.elements for tensor in tensors))
    updated = sum(
        tensor.elements / layout.parts(layout.expert_copies if tensor.expert else layout.batch_axes)
        for tensor in tensors
    )
    reductions = accumulation if setup.zero_stage == 2 else 1
    accesses = 3 * (accumulation - 1)  # a gradient added to those before
    accesses += 4 * reductions  # copied to a bucket, divided by the number of processes
    accesses_updated = 2 + 1 + 2 + 2  # gradients copied, their norm, clipped; masters copied to the weights
    accesses_updated += workload.optimizer_kind.accesses
    accesses_updated += 3 if workload.ema else 0
    launches = len(tensors) * (accumulation + 2 * reductions + workload.optimizer_kind.launches)
    moved = FLOAT * (accesses * elements + accesses_updated * updated)
    return Work(part="optimizer", flops=0.0, bytes=moved, launches=launches)


def times(work: Work, count: int) -> Work:
    """Return the same work done `count` times."""
    return Work(part=work.part, flops=work.flops * count, bytes=work.bytes * count, launches=work.launches * count)


class _Process:
    """Work of one process on the pieces of the model.

    c: bytes of a number in matrix products.
    casts: 1 if weights and inputs are cast before they are multiplied, else 0.
    """

    def __init__(self, workload: Workload, setup: Setup) -> None:
        self.workload, self.setup, self.sizes = workload, setup, Sizes.of(workload, setup.layout)
        self.rows, self.model = workload.shape.rows, workload.model
        self.c = FLOAT if workload.precision == "fp32" else 2
        self.casts = 0 if workload.precision == "fp32" else 1

    def embedding(self) -> Iterator[Work]:
        """Rows are looked up, scaled, given positions and dropout. The gradient has the size of the whole table."""
        tokens = self.workload.source_tokens + self.workload.target_tokens
        accesses = tokens * self.sizes.M * (9 + 9)
        tables = self.sizes.M * (4 * self.sizes.v + (0 if self.workload.shared else self.sizes.source_v))
        yield Work(part="embedding", flops=0.0, bytes=FLOAT * (accesses + tables), launches=2 * 16)

    def layer(self, kind: LayerKind) -> Iterator[Work]:
        """Yield the work of one layer."""
        shape, whole, again = self.workload.shape, kind.recompute == "everything", kind.recompute != "nothing"
        length = shape.target if kind.decoder else shape.source
        yield from self._attention(length, length, again)
        if kind.decoder:
            yield from self._attention(length, shape.source, again)
        if kind.moe:
            yield from self._moe(self.rows * length, self.model.moe.gate_of(decoder=kind.decoder), whole)
        else:
            yield from self._dense(self.rows * length, whole)

    def logits(self, *, again: bool) -> Iterator[Work]:
        """Yield the work of the logits and the cross-entropy, which is computed in float32."""
        tokens, forward = self.workload.target_tokens, TRAINING + again
        yield self._multiply("logits", [products.logits(self.sizes, tokens)], forward)
        moved = tokens * self.sizes.v * (4 * FLOAT + self.casts * (FLOAT + self.c))
        yield Work(part="logits", flops=0.0, bytes=moved * forward, launches=10 * forward)

    def _attention(self, queries: int, keys: int, again: bool) -> Iterator[Work]:
        """Attention with its norm, dropout and residual connection."""
        M, inner, forward = self.sizes.M, self.sizes.n * self.sizes.D, TRAINING + again
        tokens, key_tokens = self.rows * queries, self.rows * keys
        multiplied = list(products.attention(self.sizes, self.rows, queries, keys))
        projections = [product for product in multiplied if product.part == "projections"]
        yield self._multiply("projections", projections, forward)
        scores = sum(product.flops for product in multiplied if product.part == "attention")
        moved: float = 2 * (tokens + key_tokens) * inner * self.c + self.rows * queries * keys * FLOAT  # and the mask
        yield Work(part="attention", flops=scores * (FUSED + again), bytes=moved * forward, launches=2 + again)
        moved = 2 * tokens * inner * self.c + self._around(tokens, casts=1) + self.casts * 2 * key_tokens * M * 6
        yield Work(part="projections", flops=0.0, bytes=moved * forward, launches=8 * forward)

    def _dense(self, tokens: int, again: bool) -> Iterator[Work]:
        """A feed-forward network with its norm, dropout and residual connection."""
        yield from self._feed_forward(tokens, self.sizes.h, again)
        moved = self._around(tokens, casts=1)
        yield Work(part="dense", flops=0.0, bytes=moved * (TRAINING + again), launches=6 * (TRAINING + again))

    def _moe(self, tokens: int, gate: GateConfig, again: bool) -> Iterator[Work]:
        """Router, dispatch, experts and combination."""
        forward, M, sizes = TRAINING + again, self.sizes.M, self.sizes
        router = products.router(self.model, gate, tokens)
        routed = forward + (tokens * router.columns > ROUTER_CHUNK)  # logits of a chunk are computed again in backward
        choices = int(-(-gate.experts_per_token // 1))
        scanned = tokens * router.columns * FLOAT * (3 + choices)  # softmax, its sums, and each choice's argmax
        yield Work(part="gate", flops=router.flops * routed, bytes=FLOAT * router.elements * routed, launches=routed)
        yield Work(part="gate", flops=0.0, bytes=scanned * routed, launches=(30 + 10 * choices) * routed)
        rows = products.expert_rows(self.model, gate, tokens)
        chosen = tokens * gate.experts_per_token
        moved = M * (rows * (FLOAT + self.c) + chosen * self.c + tokens * self.c)  # gathered, and gathered back
        moved += M * rows * self.casts * (FLOAT + self.c) + self._around(tokens, casts=0)
        if self.setup.layout.handed_over:
            moved += 4 * M * rows * self.c  # sorted by expert on arrival, and back
        by_einsum = (
            self.model.moe.dispatch == "einsum"
            and training_capacity(gate, tokens, self.model.moe.num_experts) is not None
        )
        flops = 2 * 2 * tokens * rows * M * (forward - 0.5) if by_einsum else 0.0  # the mask has no gradient
        yield Work(part="dispatch", flops=flops, bytes=moved * forward, launches=30 * forward)
        yield self._multiply("experts", list(products.experts(sizes, self.model, gate, tokens)), forward)
        yield self._activation("experts", rows / sizes.share * sizes.eh, forward)
        if number := self.model.moe.shared_experts:
            yield from self._feed_forward(tokens, number * sizes.eh, again)
            yield Work(part="dense", flops=0.0, bytes=3 * tokens * M * self.c * forward, launches=forward)
        if self.model.moe.conditional is not None:
            yield from self._feed_forward(tokens, sizes.h, again)
            mixed = products.mixture(sizes, tokens).flops
            yield Work(part="dense", flops=mixed * forward, bytes=4 * tokens * M * FLOAT * forward, launches=6)

    def _feed_forward(self, tokens: int, hidden: int, again: bool) -> Iterator[Work]:
        yield self._multiply("dense", list(products.feed_forward(self.sizes, tokens, hidden)), TRAINING + again)
        yield self._activation("dense", tokens * hidden, TRAINING + again)

    def _activation(self, part: str, units: float, forward: int) -> Work:
        """The activation of so many hidden units."""
        accesses, launches = ACTIVATION[self.model.activation]
        return Work(part=part, flops=0.0, bytes=accesses * units * self.c * forward, launches=launches * forward)

    def _multiply(self, part: str, multiplied: list[Product], forward: int) -> Work:
        """Products with weights. Under bf16 weights are cast before, and their gradients after."""
        moved = sum(product.elements for product in multiplied) * self.c * forward
        moved += self.casts * sum(product.weights for product in multiplied) * (FLOAT + self.c) * (forward - 1)
        launches = sum(product.count for product in multiplied) * forward
        flops = sum(product.flops for product in multiplied) * forward
        return Work(part=part, flops=flops, bytes=moved, launches=launches)

    def _around(self, tokens: int, *, casts: int) -> float:
        """Return the bytes of norm, dropout, residual connection and casts in a forward pass.

        casts: how often a tensor of the residual stream is cast under bf16.
        """
        dropout = 3 * self.c if self.model.dropout else 0
        accesses = 2 * FLOAT + dropout + 2 * FLOAT + self.c + self.casts * casts * (FLOAT + self.c)
        return tokens * self.sizes.M * accesses
