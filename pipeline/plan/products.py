"""The matrix products that one process executes in a forward pass over one group.

M model, H hidden, N heads, D head dim, E experts, V vocabulary. A small letter is one process's part.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.model.config import ModelConfig
from pipeline.model.moe.gates.capacity import router_outputs, training_capacity
from pipeline.model.moe.gates.config import GateConfig
from pipeline.parallel.layout import Layout
from pipeline.plan.workload import Workload


@dataclass(frozen=True, kw_only=True)
class Product:
    """The product of `rows` rows with matrices [inner, columns].

    matrices: number of matrices. Every row is multiplied by one of them.
    count: how often such a product is computed.
    """

    part: str
    rows: float
    inner: int
    columns: int
    matrices: int = 1
    count: int = 1

    @property
    def flops(self) -> float:
        return 2 * self.count * self.rows * self.inner * self.columns

    @property
    def weights(self) -> int:
        """Return the number of elements of the matrices."""
        return self.count * self.matrices * self.inner * self.columns

    @property
    def elements(self) -> float:
        """Return the number of elements that are read and written."""
        return self.weights + self.count * self.rows * (self.inner + self.columns)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes that one process computes with: those of the model, cut by the layout."""

    M: int
    D: int
    n: int  # heads
    h: int  # hidden units of a feed-forward network
    inner: int  # matrices before the activation of a network or expert
    e: int  # experts
    eh: int  # hidden units of an expert
    v: int  # target vocabulary
    source_v: int
    share: int  # number of processes that divide the expert rows of one group between them

    @classmethod
    def of(cls, workload: Workload, layout: Layout) -> "Sizes":
        model, over = workload.model, layout.axis("E")

        def part(letter: str, size: int) -> int:
            axis = layout.axis(letter)
            return size // layout.sizes[axis] if axis else size

        return cls(
            M=model.dim,
            D=model.key_dim,
            n=part("N", model.heads),
            h=part("H", model.ffn_dim),
            inner=model.ffn_matrices - 1,
            e=part("E", model.moe.num_experts),
            eh=part("H", model.moe.expert_dim),
            v=part("V", workload.target_vocabulary),
            source_v=part("V", workload.source_vocabulary),
            share=1 if over is None or layout.handed_over else layout.sizes[over],
        )


def expert_rows(model: ModelConfig, gate: GateConfig, num_tokens: int) -> float:
    """Return the rows of all experts together for one group in training."""
    slots = training_capacity(gate, num_tokens, model.moe.num_experts)
    return num_tokens * gate.experts_per_token if slots is None else model.moe.num_experts * slots


def attention(sizes: Sizes, rows: int, queries: int, keys: int) -> Iterator[Product]:
    """Yield the projections and scores of `rows` rows, each with so many queries and keys."""
    M, inner = sizes.M, sizes.n * sizes.D
    yield Product(part="projections", rows=rows * queries, inner=M, columns=inner)
    yield Product(part="projections", rows=rows * keys, inner=M, columns=inner, count=2)
    yield Product(part="projections", rows=rows * queries, inner=inner, columns=M)
    # scores, and the sum of values weighted by them; each head of a row has its own matrix
    matrices = rows * sizes.n
    yield Product(part="attention", rows=matrices * queries, inner=sizes.D, columns=keys, matrices=matrices)
    yield Product(part="attention", rows=matrices * queries, inner=keys, columns=sizes.D, matrices=matrices)


def feed_forward(sizes: Sizes, tokens: int, hidden: int) -> Iterator[Product]:
    """Yield the products of a feed-forward network with so many hidden units in this process."""
    yield Product(part="dense", rows=tokens, inner=sizes.M, columns=hidden, count=sizes.inner)
    yield Product(part="dense", rows=tokens, inner=hidden, columns=sizes.M)


def router(model: ModelConfig, gate: GateConfig, tokens: int) -> Product:
    """Return the product that gives the router's logits. No layout cuts it, and it is computed in float32."""
    columns = router_outputs(gate, model.moe.num_experts)
    return Product(part="gate", rows=tokens, inner=model.dim, columns=columns)


def experts(sizes: Sizes, model: ModelConfig, gate: GateConfig, tokens: int) -> Iterator[Product]:
    """Yield the products of the rows that one process's experts get."""
    rows = expert_rows(model, gate, tokens) / sizes.share
    yield Product(part="experts", rows=rows, inner=sizes.M, columns=sizes.eh, matrices=sizes.e, count=sizes.inner)
    yield Product(part="experts", rows=rows, inner=sizes.eh, columns=sizes.M, matrices=sizes.e)


def logits(sizes: Sizes, tokens: int) -> Product:
    """Return the product that gives the logits over the vocabulary."""
    return Product(part="logits", rows=tokens, inner=sizes.M, columns=sizes.v)


def mixture(sizes: Sizes, tokens: int) -> Product:
    """Return the product of the gate between the experts and a shared network."""
    return Product(part="gate", rows=tokens, inner=sizes.M, columns=1)
