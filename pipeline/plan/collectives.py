"""What one process sends in one training step: the model's collectives by its layout, and the engine's.

Equal to what is counted of the real code (tests/unit/plan/test_collectives.py, tests/parallel/test_collectives.py).
Left out: collectives of one process, which send nothing, and the training loop's own sum of statistics, one small
all-reduce a step.

Bytes are exact, with one exception: where a gate gives experts as many rows as chose them, they are those of groups
without padding, and of rows that come back an expectation.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipeline.model.config import MoEConfig
from pipeline.model.gate_config import training_capacity
from pipeline.parallel.config import BUCKET
from pipeline.parallel.layout import AXES, Layout
from pipeline.parallel.shapes import Shape
from pipeline.plan.parts import LOGITS_CHUNK, LOGITS_TOKENS
from pipeline.plan.shapes import shapes
from pipeline.plan.workload import Collective, Kind, Setup, Workload

FLOAT32, INT64 = 4, 8
ALIGNMENT = 2  # elements: DeepSpeed pads each process's part of a group of parameters to it


def model_collectives(workload: Workload, setup: Setup) -> list[Collective]:
    """Of all micro-batches, forward and backward; what is computed again is sent again."""
    return _Model(workload, setup).collectives()


def engine_collectives(workload: Workload, setup: Setup) -> list[Collective]:
    """Gradients, updated parameters, the gradient norm and Adafactor's sums, as DeepSpeed 0.19.8 with ZeRO-1 or 2 and
    our settings do it.

    Gradients are all-reduced in buckets, whatever its setting reduce_scatter says: ZeRO-1 after the last micro-batch,
    ZeRO-2 after each. Where a bucket holds both, experts' are reduced apart from the others', since other processes
    have copies of them. All in float32 and over the axes of the batch. The number of ZeRO-2's buckets follows from the
    order in which backward comes to the parameters, which is here taken to be the reverse of forward's.
    """
    layout, total = setup.layout, _Total()
    parts = [shape.part(layout) for shape in shapes(workload)]
    groups = _groups(parts, layout)
    axes = {part.name: group.axes for group in groups for part in group.members}
    if setup.zero_stage == 1:
        order, times = [part for group in groups for part in group.members], 1
    else:
        order, times = _backward(parts), setup.accumulation(workload)
    for over, elements in _buckets(order, axes):
        total.add("gradients", "all_reduce", over, FLOAT32 * elements, times)
    for group in groups:
        unit = ALIGNMENT * layout.parts(group.axes)
        elements = -(-sum(part.elements for part in group.members) // unit) * unit
        total.add("parameters", "all_gather", group.axes, FLOAT32 * elements)
    if workload.optimizer == "adafactor":
        _adafactor(total, workload, setup)
    total.add("norm", "all_reduce", AXES, 8)
    return total.collectives(setup)


@dataclass(frozen=True)
class _Group:
    """Of the optimizer. axes: whose processes share the reduction of its gradients."""

    members: list[Shape]
    axes: tuple[str, ...]


def _groups(parts: Sequence[Shape], layout: Layout) -> list[_Group]:
    """In the optimizer's order; none without members."""
    batch = tuple(axis for axis in layout.batch_axes if layout.sizes[axis] > 1)
    copies = tuple(axis for axis in layout.expert_copies if layout.sizes[axis] > 1)
    groups = [
        _Group([p for p in parts if not p.expert and len(p.sizes) > 1], batch),
        _Group([p for p in parts if not p.expert and len(p.sizes) == 1], batch),
        _Group([p for p in parts if p.expert], copies),
    ]
    return [group for group in groups if group.members]


def _adafactor(total: "_Total", workload: Workload, setup: Setup) -> None:
    """Per group of parameters sums over rows, columns and weights of every matrix, and then over its update: over the
    processes that hold parts of them."""
    layout = setup.layout
    for group in _groups(shapes(workload), layout):
        matrices = [shape.matrices(layout) for shape in group.members]
        cut = {layout.axis(letter) for shape in group.members for letter in "HNV" if letter in shape.letters}
        axes = tuple(axis for axis in AXES if axis in cut or axis in group.axes)
        total.add("optimizer", "all_reduce", axes, FLOAT32 * sum(B * (1 + R + C) for B, R, C in matrices))
        total.add("optimizer", "all_reduce", axes, FLOAT32 * sum(B for B, _, _ in matrices))


def _backward(parts: Sequence[Shape]) -> list[Shape]:
    """Backward ends with the source embedding; the target embedding is done once the decoder's first layer is."""
    embeddings = [p for p in parts if p.letters == "VM"]
    decoder = [p for p in parts if p.name.startswith("decoder.")]
    encoder = [p for p in parts if p.name.startswith("encoder.")]
    return [*reversed(decoder), *embeddings[:1], *reversed(encoder), *embeddings[1:]]


def _buckets(order: Sequence[Shape], axes: dict[str, tuple[str, ...]]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Axes and elements of each all-reduce. A parameter that is larger than a bucket goes alone."""
    bucket: dict[tuple[str, ...], int] = defaultdict(int)
    for part in order:
        if bucket and sum(bucket.values()) + part.elements > BUCKET:
            yield from bucket.items()
            bucket.clear()
        bucket[axes[part.name]] += part.elements
    yield from bucket.items()


class _Total:
    """Collectives of equal part, kind and axes, added up."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, Kind, tuple[str, ...]], tuple[int, int]] = {}

    def add(self, part: str, kind: Kind, axes: tuple[str, ...], bytes_each: int, count: int = 1) -> None:
        size, number = self._found.get((part, kind, axes), (0, 0))
        self._found[part, kind, axes] = size + count * bytes_each, number + count

    def collectives(self, setup: Setup) -> list[Collective]:
        return [
            Collective(part=part, kind=kind, axes=axes, bytes=size, count=number)
            for (part, kind, axes), (size, number) in self._found.items()
            if number and setup.layout.parts(axes) > 1
        ]


class _Model:
    """One training step of the model."""

    def __init__(self, workload: Workload, setup: Setup) -> None:
        self._workload, self._setup, self._total = workload, setup, _Total()
        self._layout, self._config = setup.layout, workload.model
        self._width = 2 if workload.precision in ("bf16", "fp16") else FLOAT32  # of what matmuls take and give
        self._micro_batches = setup.accumulation(workload)

    def collectives(self) -> list[Collective]:
        shape, config = self._workload.shape, self._config
        source, target = shape.rows * shape.source, shape.rows * shape.target
        self._embedding(source, target)
        for number in range(1, config.encoder_layers + 1):
            self._layer(number, source, None)
        for number in range(1, config.decoder_layers + 1):
            self._layer(number, target, source)
        self._loss(target)
        return self._total.collectives(self._setup)

    def _add(self, part: str, kind: Kind, axes: tuple[str, ...], bytes_each: int, count: int = 1) -> None:
        self._total.add(part, kind, axes, bytes_each, count * self._micro_batches)

    def _embedding(self, source: int, target: int) -> None:
        """Rows that other processes look up are zeros here: a sum, without one in backward."""
        if axis := self._layout.axis("V"):
            for tokens in (source, target):
                self._add("embedding", "all_reduce", (axis,), FLOAT32 * tokens * self._config.dim)

    def _loss(self, tokens: int) -> None:
        """Per chunk of tokens the largest logit, three sums, and the gradient of what comes in."""
        axis = self._layout.axis("V")
        if axis is None:
            return
        vocabulary = self._workload.target_vocabulary // self._layout.sizes[axis]
        chunks = -(-tokens // max(LOGITS_TOKENS, LOGITS_CHUNK // vocabulary))
        size, left = -(-tokens // chunks), tokens
        again = self._setup.recompute != "none" and chunks > 1
        while left > 0:
            chunk = min(size, left)
            self._add("logits", "all_reduce", (axis,), FLOAT32 * chunk, 2 if again else 1)
            self._add("logits", "all_reduce", (axis,), FLOAT32 * 3 * chunk, 2 if again else 1)
            self._add("logits", "all_reduce", (axis,), self._width * chunk * self._config.dim)
            left -= chunk

    def _layer(self, number: int, tokens: int, memory: int | None) -> None:
        """tokens: of the layer's side; memory: of the encoder's, in a decoder layer.

        Computing again stops where nothing more is kept for backward: the sum that ends it is needed only if something
        behind it keeps its input, as dropout does.
        """
        what = self._setup.recompute
        whole = what == "all" or (what == "layers" and number % 2 == 1)
        last = 2 if self._config.dropout else 1
        passes = 2 if whole else 1
        if axis := self._layout.axis("N"):
            ends = passes if what != "selective" else last
            inner = 2 if what == "selective" else passes
            self._cut("attention", axis, [tokens], tokens, ends if memory is None else inner)
            if memory is not None:
                self._cut("attention", axis, [tokens, memory], tokens, ends)
        if self._config.is_moe(number):
            self._moe(tokens, memory is not None, passes, last if whole else 1)
        elif axis := self._layout.axis("H"):
            self._cut("dense", axis, [tokens], tokens, last if whole else 1)

    def _cut(self, part: str, axis: str, entering: Sequence[int], leaving: int, passes: int) -> None:
        """What enters is summed in backward, what leaves in forward, `passes` times."""
        row = self._width * self._config.dim
        for tokens in entering:
            self._add(part, "all_reduce", (axis,), row * tokens)
        self._add(part, "all_reduce", (axis,), row * leaving, passes)

    def _moe(self, tokens: int, decoder: bool, passes: int, last: int) -> None:
        moe = self._config.moe
        gate = moe.gate_of(decoder=decoder)
        capacity = training_capacity(gate, tokens, moe.num_experts)
        rows = moe.num_experts * capacity if capacity else round(gate.experts_per_token * tokens)
        if self._layout.handed_over:
            axis = self._layout.axis("E")
            assert axis is not None
            self._add("dispatch", "all_to_all", (axis,), self._width * rows * self._config.dim, 2 * passes + 2)
            if capacity is None:
                self._add("dispatch", "all_to_all", (axis,), INT64 * moe.num_experts, passes)
        if moe.conditional is not None:
            last = passes  # the mixture keeps both its inputs
            if axis := self._layout.axis("H"):
                self._cut("dense", axis, [tokens], tokens, passes)
        self._experts_sum(moe, tokens, capacity, _weights(moe, decoder, tokens, capacity), last)

    def _experts_sum(self, moe: MoEConfig, tokens: int, capacity: int | None, weights: int, passes: int) -> None:
        """Where each process has a share of every token's result. The router's weights and tokens enter in float32."""
        shared = None if self._layout.handed_over else self._layout.axis("E")
        summed = {axis for axis in (shared, self._layout.axis("H")) if axis is not None}
        if not summed:
            return
        axes, M = tuple(axis for axis in AXES if axis in summed), self._config.dim
        if moe.dispatch == "einsum" and capacity is not None:
            weights = tokens * moe.num_experts * capacity
        self._add("experts", "all_reduce", axes, FLOAT32 * weights)
        self._add("experts", "all_reduce", axes, FLOAT32 * tokens * M)
        self._add("experts", "all_reduce", axes, self._width * tokens * M, passes)


def _weights(moe: MoEConfig, decoder: bool, tokens: int, capacity: int | None) -> int:
    """Combine weights of a group: of each choice, or of each row where experts choose."""
    gate = moe.gate_of(decoder=decoder)
    if gate.kind in ("balanced", "expert_choice"):
        assert capacity is not None
        return moe.num_experts * capacity
    return round(gate.experts_per_token * tokens)
