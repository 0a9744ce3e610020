"""The names and shapes of a model's parameters, computed without the model. A test compares them with a real one.

V vocabulary, M model, N heads, D head dim, H hidden, E experts.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pipeline.model.components import MARK
from pipeline.model.config import ModelConfig
from pipeline.model.lora import is_target, matrices
from pipeline.model.moe.gates.config import GateConfig
from pipeline.parallel.layout import Layout

FLOAT = 4  # bytes


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One parameter.

    letters: the names of its dimensions if a layout may cut it, else empty.
    expert: the parameter belongs to experts.
    """

    name: str
    sizes: tuple[int, ...]
    letters: str = ""
    expert: bool = False

    @property
    def trained(self) -> bool:
        """False for a bias that balances experts: it has no gradient, and the optimizer has no state for it."""
        return not self.name.endswith(".router.bias_E")

    @property
    def elements(self) -> int:
        return math.prod(self.sizes)

    def matrices(self, layout: Layout | None = None) -> tuple[int, int, int]:
        """Return the parameter as Adafactor reads it: B matrices of one process, with R rows and C columns each.

        No layout cuts rows and columns. A vector has neither.
        """
        if len(self.sizes) == 1:
            return 1, 0, 0
        if self.expert:
            B, R, C = self.sizes
            return self.part(layout).sizes[0] if layout else B, R, C
        # M, or R of an adapter, is the rows or the columns
        split = 1 if self.letters.startswith(("M", "R")) else len(self.sizes) - 1
        return 1, math.prod(self.sizes[:split]), math.prod(self.sizes[split:])

    def factors(self, layout: Layout | None = None) -> int:
        """Return the number of Adafactor's row and column means; 0 for a vector."""
        B, R, C = self.matrices(layout)
        return B * (R + C)

    def part(self, layout: Layout) -> "Shape":
        """Return the part of one process. Raises ValueError if a size is not divisible by the number of parts."""
        sizes = list(self.sizes)
        for dim, letter in enumerate(self.letters):
            parts = layout.parts(layout.table.get(letter, ()))
            if sizes[dim] % parts:
                raise ValueError(f"{self.name}: {letter}={sizes[dim]} is not divisible by {parts} processes")
            sizes[dim] //= parts
        return Shape(name=self.name, sizes=tuple(sizes), letters=self.letters, expert=self.expert)


def parameter_shapes(
    config: ModelConfig, *, source_vocabulary: int, target_vocabulary: int, shared: bool
) -> list[Shape]:
    """Return the shapes of all parameters, in the order of `Transformer.named_parameters`."""
    shapes = [Shape(name="target_embedding_VM", sizes=(target_vocabulary, config.dim), letters="VM")]
    if not shared:
        shapes.append(Shape(name="source_embedding_VM", sizes=(source_vocabulary, config.dim), letters="VM"))
    for side, num_layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for index in range(num_layers):
            shapes.extend(_layer(config, f"{side}.layers.{index}", index + 1, decoder=side == "decoder"))
        shapes.extend(_norm(f"{side}.norm", config))
    return shapes


def adapter_shapes(shapes: Iterable[Shape], rank: int, targets: Sequence[str]) -> Iterator[Shape]:
    """Yield the parameters of the adapters of a model. shapes: of the model without them."""
    for shape in shapes:
        if is_target(shape.name, targets):
            prefix, _, leaf = shape.name.rpartition(".")
            for name, sizes in matrices(leaf, shape.sizes, rank).items():
                yield Shape(name=f"{prefix}{MARK}{leaf}.{name}", sizes=sizes, letters=name.rpartition("_")[2])


def _layer(config: ModelConfig, prefix: str, number: int, *, decoder: bool) -> Iterator[Shape]:
    M, N, D = config.dim, config.heads, config.key_dim
    for attention in ("self_attention", "cross_attention") if decoder else ("self_attention",):
        yield from _norm(f"{prefix}.{attention}_norm", config)
        for name in ("wq_MND", "wk_MND", "wv_MND"):
            yield Shape(name=f"{prefix}.{attention}.{name}", sizes=(M, N, D), letters="MND")
        yield Shape(name=f"{prefix}.{attention}.wo_NDM", sizes=(N, D, M), letters="NDM")
        if config.biases:
            for name in ("bq_X", "bk_X", "bv_X"):
                yield Shape(name=f"{prefix}.{attention}.{name}", sizes=(N * D,))
            yield Shape(name=f"{prefix}.{attention}.bo_M", sizes=(M,))
    yield from _norm(f"{prefix}.feed_forward_norm", config)
    if config.is_moe(number):
        yield from _moe(config, f"{prefix}.feed_forward", config.moe.gate_of(decoder=decoder))
    else:
        yield from _feed_forward(f"{prefix}.feed_forward", config, config.ffn_dim)


def _moe(config: ModelConfig, prefix: str, gate: GateConfig) -> Iterator[Shape]:
    moe, M = config.moe, config.dim
    E, H = moe.num_experts, moe.expert_dim
    for name, sizes in gate.router_shapes(E, M).items():
        yield Shape(name=f"{prefix}.router.{name}", sizes=sizes)
    for name in _inner(config):
        yield Shape(name=f"{prefix}.experts.{name}_EMH", sizes=(E, M, H), letters="EMH", expert=True)
    yield Shape(name=f"{prefix}.experts.wo_EHM", sizes=(E, H, M), letters="EHM", expert=True)
    if config.biases:
        yield Shape(name=f"{prefix}.experts.bi_E1H", sizes=(E, 1, H), letters="E1H", expert=True)
        yield Shape(name=f"{prefix}.experts.bo_E1M", sizes=(E, 1, M), letters="E1M", expert=True)
    if moe.shared_experts:
        yield from _feed_forward(f"{prefix}.shared_experts", config, moe.shared_dim)
    if moe.conditional is not None:
        yield Shape(name=f"{prefix}.conditional.wc_M", sizes=(M,))
        yield from _feed_forward(f"{prefix}.conditional.shared", config, config.ffn_dim)


def _feed_forward(prefix: str, config: ModelConfig, H: int) -> Iterator[Shape]:
    M = config.dim
    for name in _inner(config):
        yield Shape(name=f"{prefix}.{name}_MH", sizes=(M, H), letters="MH")
    yield Shape(name=f"{prefix}.wo_HM", sizes=(H, M), letters="HM")
    if config.biases:
        yield Shape(name=f"{prefix}.bi_H", sizes=(H,), letters="H")
        yield Shape(name=f"{prefix}.bo_M", sizes=(M,))


def _inner(config: ModelConfig) -> tuple[str, ...]:
    """Return the names of the matrices before the activation."""
    return ("wi", "wu")[: config.ffn_matrices - 1]


def _norm(prefix: str, config: ModelConfig) -> Iterator[Shape]:
    for name in ("weight", "bias")[: config.norm_vectors]:
        yield Shape(name=f"{prefix}.{name}", sizes=(config.dim,))
