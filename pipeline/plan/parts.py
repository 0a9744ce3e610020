"""What one process computes in a step, part by part: the FLOPs that it executes and the bytes that pass through memory.

Products are counted exactly as the model executes them: experts at capacity, fused attention with its scores computed
again in backward, and whatever `Transformer.recompute` computes again. Bytes are an estimate: every operation reads its
inputs from memory and writes its output there.
"""

from collections import Counter
from collections.abc import Iterator

from pipeline.model.config import Recompute
from pipeline.model.gate_config import GateConfig, training_capacity
from pipeline.plan import products
from pipeline.plan.products import Product, Sizes
from pipeline.plan.shapes import shapes
from pipeline.plan.workload import Setup, Work, Workload

FLOAT = 4  # bytes of a weight, of the residual stream and of everything in a router
TRAINING = 3  # forward, gradient to inputs, gradient to weights
FUSED = 3.5  # forward, and five products for two in backward, which computes scores again

# Fixed by the model: `pipeline.model.loss` and `pipeline.model.router_chunks`
LOGITS_CHUNK, LOGITS_TOKENS, ROUTER_CHUNK = 1 << 23, 1024, 1 << 20


def micro_batch(workload: Workload, setup: Setup) -> list[Work]:
    """Of one group, forward and backward; several of one part where they differ in what bounds them."""
    sizes = Sizes.of(workload, setup.layout)
    shape, model = workload.shape, workload.model
    process = _Process(workload, sizes, setup)
    source, target = shape.rows * shape.source, shape.rows * shape.target
    found = [*process.embedding(source, target)]
    for decoder, tokens, queries in ((False, source, shape.source), (True, target, shape.target)):
        layers = model.decoder_layers if decoder else model.encoder_layers
        for (is_moe, again), count in _layers(workload, layers, setup.recompute).items():
            works = [*process.attention(queries, queries, again or setup.recompute == "selective")]
            if decoder:
                works += process.attention(queries, shape.source, again or setup.recompute == "selective")
            if is_moe:
                works += process.moe(tokens, model.moe.gate_of(decoder=decoder), again)
            else:
                works += process.dense(tokens, again)
            found += [times(work, count) for work in works]
    return [*found, *process.logits(target, again=setup.recompute != "none")]


def optimizer(workload: Workload, setup: Setup) -> Work:
    """Of one step: gradients of micro-batches added up, made ready to travel, and the update of this process's part of
    them, as ZeRO-1 or 2 does it."""
    layout, accumulation, tensors = setup.layout, setup.accumulation(workload), shapes(workload)
    held = part = 0.0  # elements of all gradients of this process, and of those that it updates
    for shape in tensors:
        elements = shape.part(layout).elements
        held += elements
        part += elements / layout.parts(layout.expert_copies if shape.expert else layout.batch_axes)
    reductions = accumulation if setup.zero_stage == 2 else 1
    per_held = 3 * (accumulation - 1)  # a gradient added to those before
    per_held += 4 * reductions  # copied to a bucket, divided by the number of processes
    per_part = 2 + 1 + 2 + 2  # gradients copied, their norm, clipped; masters copied to the weights
    # AdamW, fused, reads weight, gradient and two moments and writes all but the gradient. Adafactor squares gradients
    # and weights, sums squares over rows and columns, scales by both, squares again and adds the update.
    per_part += 7 if workload.optimizer == "adamw" else 19
    per_part += 3 if workload.ema else 0
    launches = len(tensors) * (accumulation + 2 * reductions + (2 if workload.optimizer == "adamw" else 30))
    return Work(part="optimizer", flops=0.0, bytes=FLOAT * (per_held * held + per_part * part), launches=launches)


def times(work: Work, count: int) -> Work:
    return Work(part=work.part, flops=work.flops * count, bytes=work.bytes * count, launches=work.launches * count)


def _layers(workload: Workload, layers: int, recompute: Recompute) -> Counter[tuple[bool, bool]]:
    """How many layers are MoE layers or not, and computed again as a whole or not."""
    return Counter(
        (workload.model.is_moe(index), recompute == "all" or (recompute == "layers" and index % 2 == 1))
        for index in range(1, layers + 1)
    )


class _Process:
    """Work of the pieces of a layer. c: bytes of what matrices are multiplied in."""

    def __init__(self, workload: Workload, sizes: Sizes, setup: Setup) -> None:
        self.workload, self.sizes, self.setup = workload, sizes, setup
        self.rows, self.model = workload.shape.rows, workload.model
        self.c = FLOAT if workload.precision == "fp32" else 2
        self.casts = 0 if workload.precision == "fp32" else 1

    def embedding(self, source: int, target: int) -> Iterator[Work]:
        """Rows looked up, scaled, given positions and dropout; a gradient of the whole table."""
        tokens = source + target
        passed = tokens * self.sizes.M * (9 + 9)
        tables = self.sizes.M * (4 * self.sizes.v + (0 if self.workload.shared else self.sizes.source_v))
        yield Work(part="embedding", flops=0.0, bytes=FLOAT * (passed + tables), launches=2 * 16)

    def attention(self, queries: int, keys: int, again: bool) -> Iterator[Work]:
        """With its norm, dropout and residual connection."""
        M, inner, forward = self.sizes.M, self.sizes.n * self.sizes.D, TRAINING + again
        tokens, key_tokens = self.rows * queries, self.rows * keys
        found = list(products.attention(self.sizes, self.rows, queries, keys))
        yield self._multiply("projections", [each for each in found if each.part == "projections"], forward)
        scores = sum(each.flops for each in found if each.part == "attention")
        passed = 2 * (tokens + key_tokens) * inner * self.c + self.rows * queries * keys * FLOAT  # and the mask
        yield Work(part="attention", flops=scores * (FUSED + again), bytes=passed * forward, launches=2 + again)
        moved = 2 * tokens * inner * self.c + self._around(tokens, casts=1) + self.casts * 2 * key_tokens * M * 6
        yield Work(part="projections", flops=0.0, bytes=moved * forward, launches=8 * forward)

    def dense(self, tokens: int, again: bool) -> Iterator[Work]:
        yield from self._feed_forward(tokens, again)
        passed = self._around(tokens, casts=1)
        yield Work(part="dense", flops=0.0, bytes=passed * (TRAINING + again), launches=6 * (TRAINING + again))

    def moe(self, tokens: int, gate: GateConfig, again: bool) -> Iterator[Work]:
        """Router, dispatch, experts and combination."""
        forward, M, sizes = TRAINING + again, self.sizes.M, self.sizes
        router = next(products.router(self.model, gate, tokens))
        routed = forward + (tokens * router.columns > ROUTER_CHUNK)  # logits of a chunk are computed again in backward
        choices = int(-(-gate.experts_per_token // 1))
        looked = tokens * router.columns * FLOAT * (3 + choices)  # softmax, its sums, and each choice's argmax
        yield Work(part="gate", flops=router.flops * routed, bytes=FLOAT * router.elements * routed, launches=routed)
        yield Work(part="gate", flops=0.0, bytes=looked * routed, launches=(30 + 10 * choices) * routed)
        rows = products.expert_rows(self.model, gate, tokens)
        asked = tokens * gate.experts_per_token
        moved = M * (rows * (FLOAT + self.c) + asked * self.c + tokens * self.c)  # gathered, and gathered back
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
        hidden = 2 * rows / sizes.share * sizes.eh * self.c
        yield Work(part="experts", flops=0.0, bytes=hidden * forward, launches=forward)
        if self.model.moe.conditional is not None:
            yield from self._feed_forward(tokens, again)
            mixed = sum(each.flops for each in products.mixture(sizes, tokens))
            yield Work(part="dense", flops=mixed * forward, bytes=4 * tokens * M * FLOAT * forward, launches=6)

    def logits(self, tokens: int, *, again: bool) -> Iterator[Work]:
        """With the cross-entropy, in float32; of a chunk of tokens computed again where there are several."""
        product = products.logits(self.sizes, tokens)
        forward = TRAINING + (again and tokens > max(LOGITS_TOKENS, LOGITS_CHUNK // self.sizes.v))
        yield self._multiply("logits", [product], forward)
        passed = tokens * self.sizes.v * (4 * FLOAT + self.casts * (FLOAT + self.c))
        yield Work(part="logits", flops=0.0, bytes=passed * forward, launches=10 * forward)

    def _feed_forward(self, tokens: int, again: bool) -> Iterator[Work]:
        yield self._multiply("dense", list(products.feed_forward(self.sizes, tokens)), TRAINING + again)
        hidden = 2 * tokens * self.sizes.h * self.c
        yield Work(part="dense", flops=0.0, bytes=hidden * (TRAINING + again), launches=TRAINING + again)

    def _multiply(self, part: str, found: list[Product], forward: int) -> Work:
        """Products with weights, which bf16 casts on the way in, and their gradients on the way out."""
        passed = sum(each.elements for each in found) * self.c * forward
        passed += self.casts * sum(each.weights for each in found) * (FLOAT + self.c) * (forward - 1)
        launches = sum(each.count for each in found) * forward
        return Work(part=part, flops=sum(each.flops for each in found) * forward, bytes=passed, launches=launches)

    def _around(self, tokens: int, *, casts: int) -> float:
        """Bytes of norm, dropout and residual connection in a forward pass, and of casting what is multiplied."""
        dropout = 3 * self.c if self.model.dropout else 0
        accesses = 2 * FLOAT + dropout + 2 * FLOAT + self.c + self.casts * casts * (FLOAT + self.c)
        return tokens * self.sizes.M * accesses
