"""The matrix products of a forward pass over one group, as one process executes them.

S tokens of a group (source or target), M model, H hidden, N heads, D head dim, E experts, C capacity, V vocabulary;
a small letter is one process's part.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.model.config import ModelConfig
from pipeline.model.gate_config import GateConfig, HierarchicalConfig, training_capacity
from pipeline.parallel.layout import Layout
from pipeline.plan.workload import Workload


@dataclass(frozen=True, kw_only=True)
class Product:
    """`rows` rows, each times one of `matrices` matrices [inner, columns], `count` times."""

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
        """Elements of the matrices."""
        return self.count * self.matrices * self.inner * self.columns

    @property
    def elements(self) -> float:
        """Read and written."""
        return self.weights + self.count * self.rows * (self.inner + self.columns)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What one process computes with: the model's sizes, cut as the layout says."""

    M: int
    D: int
    n: int  # heads
    h: int  # hidden units of a feed-forward network
    e: int  # experts
    eh: int  # hidden units of an expert
    v: int  # target vocabulary
    source_v: int
    share: int  # processes that compute one group's rows of experts between them

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
            e=part("E", model.moe.num_experts),
            eh=part("H", model.moe.expert_dim),
            v=part("V", workload.target_vocabulary),
            source_v=part("V", workload.source_vocabulary),
            share=1 if over is None or layout.handed_over else layout.sizes[over],
        )


def expert_rows(model: ModelConfig, gate: GateConfig, num_tokens: int) -> float:
    """Rows of all experts together for a group in training."""
    slots = training_capacity(gate, num_tokens, model.moe.num_experts)
    return num_tokens * gate.experts_per_token if slots is None else model.moe.num_experts * slots


def attention(sizes: Sizes, rows: int, queries: int, keys: int) -> Iterator[Product]:
    """Projections and scores of `rows` rows; the second and third product are made of keys' tokens."""
    M, inner = sizes.M, sizes.n * sizes.D
    yield Product(part="projections", rows=rows * queries, inner=M, columns=inner)
    yield Product(part="projections", rows=rows * keys, inner=M, columns=inner, count=2)
    yield Product(part="projections", rows=rows * queries, inner=inner, columns=M)
    # scores, and the values that they weight; heads of a row are one matrix each
    matrices = rows * sizes.n
    yield Product(part="attention", rows=matrices * queries, inner=sizes.D, columns=keys, matrices=matrices)
    yield Product(part="attention", rows=matrices * queries, inner=keys, columns=sizes.D, matrices=matrices)


def feed_forward(sizes: Sizes, tokens: int) -> Iterator[Product]:
    yield Product(part="dense", rows=tokens, inner=sizes.M, columns=sizes.h)
    yield Product(part="dense", rows=tokens, inner=sizes.h, columns=sizes.M)


def router(model: ModelConfig, gate: GateConfig, tokens: int) -> Iterator[Product]:
    """Never cut, and in float32."""
    groups = gate.groups if isinstance(gate, HierarchicalConfig) else 0
    width = gate.router_width * (model.moe.num_experts + groups)
    yield Product(part="gate", rows=tokens, inner=model.dim, columns=width)


def experts(sizes: Sizes, model: ModelConfig, gate: GateConfig, tokens: int) -> Iterator[Product]:
    """Of the rows that a process's experts get: from all groups that are handed over, or its share of one's."""
    rows = expert_rows(model, gate, tokens) / sizes.share
    yield Product(part="experts", rows=rows, inner=sizes.M, columns=sizes.eh, matrices=sizes.e)
    yield Product(part="experts", rows=rows, inner=sizes.eh, columns=sizes.M, matrices=sizes.e)


def logits(sizes: Sizes, tokens: int) -> Product:
    return Product(part="logits", rows=tokens, inner=sizes.M, columns=sizes.v)


def mixture(sizes: Sizes, tokens: int) -> Iterator[Product]:
    """The gate between experts and a shared network."""
    yield Product(part="gate", rows=tokens, inner=sizes.M, columns=1)
