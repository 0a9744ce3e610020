"""The collectives that one process takes part in during a training step: those of the model, and those of the engine.

They are equal to what is counted of the real code (tests/unit/plan/test_collectives.py and
tests/parallel/test_collectives.py). Left out are collectives of one process, which send nothing, and the training
loop's sum of statistics and that of the choices by which biases of experts move, each one small all-reduce a step.

Bytes are exact, with one exception. Without a capacity, an expert has as many rows as tokens chose it. Then the bytes
are those of groups without padding, and the rows that come back are an expectation.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipeline.engine import BUCKET
from pipeline.model.config import MoEConfig
from pipeline.model.moe.gates.capacity import training_capacity
from pipeline.parallel.layout import AXES
from pipeline.parallel.shapes import Shape
from pipeline.plan.layers import LayerKind, layer_kinds, logit_chunks, recomputes_logits
from pipeline.plan.shapes import optimizer_groups, trained_shapes
from pipeline.plan.workload import Collective, Kind, Setup, Workload

FLOAT32, INT64 = 4, 8
ALIGNMENT = 2  # elements: DeepSpeed pads each process's part of a group of parameters to it


def model_collectives(workload: Workload, setup: Setup) -> list[Collective]:
    """Return the model's collectives in all micro-batches of a step, with those that recomputation sends again."""
    return _Model(workload, setup).collectives()


def engine_collectives(workload: Workload, setup: Setup) -> list[Collective]:
    """Return the collectives of DeepSpeed 0.19.8 with ZeRO-1 or 2 and our settings.

    They carry gradients, updated parameters, the gradient norm and Adafactor's sums, all in float32.

    Gradients are all-reduced in buckets, whatever the setting reduce_scatter says: by ZeRO-1 after the last
    micro-batch, by ZeRO-2 after each. Gradients of experts in a bucket are reduced apart from the others, since other
    processes have copies of them. The number of ZeRO-2's buckets depends on the order in which backward reaches the
    parameters, which is taken to be the reverse of forward's.
    """
    layout, total = setup.layout, _Total()
    parts = trained_shapes(workload, layout)
    groups = _groups(workload, setup, parts=True)
    axes = {part.name: group.axes for group in groups for part in group.members}
    if setup.zero_stage == 1:
        order, reductions = [part for group in groups for part in group.members], 1
    else:
        order, reductions = _backward(parts), setup.accumulation(workload)
    for bucket_axes, elements in _buckets(order, axes):
        total.add("gradients", "all_reduce", bucket_axes, FLOAT32 * elements, reductions)
    for group in groups:
        unit = ALIGNMENT * layout.parts(group.axes)
        elements = -(-sum(part.elements for part in group.members) // unit) * unit
        total.add("parameters", "all_gather", group.axes, FLOAT32 * elements)
    if workload.optimizer_kind.factored:
        _factors(total, workload, setup)
    total.add("norm", "all_reduce", AXES, 8)
    return total.collectives(setup)


@dataclass(frozen=True)
class _Group:
    """A group of the optimizer's parameters. axes: axes of the processes that reduce its gradients together."""

    members: Sequence[Shape]
    axes: tuple[str, ...]


def _groups(workload: Workload, setup: Setup, *, parts: bool) -> list[_Group]:
    """Return the groups in the optimizer's order. parts: with the part of each parameter that one process holds."""
    layout = setup.layout
    batch = tuple(axis for axis in layout.batch_axes if layout.sizes[axis] > 1)
    copies = tuple(axis for axis in layout.expert_copies if layout.sizes[axis] > 1)
    groups = optimizer_groups(workload, layout if parts else None)
    return [_Group(members, copies if group.expert else batch) for group, members in groups]


def _factors(total: "_Total", workload: Workload, setup: Setup) -> None:
    """Add the two sums of Adafactor for each group of parameters, over the processes that hold parts of them.

    The first sums rows, columns and weights of every matrix, the second its update.
    """
    layout = setup.layout
    for group in _groups(workload, setup, parts=False):
        matrices = [shape.matrices(layout) for shape in group.members]
        cut = {layout.axis(letter) for shape in group.members for letter in "HNV" if letter in shape.letters}
        axes = tuple(axis for axis in AXES if axis in cut or axis in group.axes)
        total.add("optimizer", "all_reduce", axes, FLOAT32 * sum(B * (1 + R + C) for B, R, C in matrices))
        total.add("optimizer", "all_reduce", axes, FLOAT32 * sum(B for B, _, _ in matrices))


def _backward(parts: Sequence[Shape]) -> list[Shape]:
    """Return the parameters in the order in which backward completes their gradients.

    The target embedding is complete after the decoder's first layer. The source embedding comes last.
    """
    embeddings = [part for part in parts if part.letters == "VM"]
    decoder = [part for part in parts if part.name.startswith("decoder.")]
    encoder = [part for part in parts if part.name.startswith("encoder.")]
    return [*reversed(decoder), *embeddings[:1], *reversed(encoder), *embeddings[1:]]


def _buckets(order: Sequence[Shape], axes: dict[str, tuple[str, ...]]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the axes and elements of each all-reduce. A parameter that is larger than a bucket has its own."""
    bucket: dict[tuple[str, ...], int] = defaultdict(int)
    for part in order:
        if bucket and sum(bucket.values()) + part.elements > BUCKET:
            yield from bucket.items()
            bucket.clear()
        bucket[axes[part.name]] += part.elements
    yield from bucket.items()


class _Total:
    """Bytes and number of collectives of equal part, kind and axes."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, Kind, tuple[str, ...]], tuple[int, int]] = {}

    def add(self, part: str, kind: Kind, axes: tuple[str, ...], bytes_each: int, count: int = 1) -> None:
        size, number = self._sums.get((part, kind, axes), (0, 0))
        self._sums[part, kind, axes] = size + count * bytes_each, number + count

    def collectives(self, setup: Setup) -> list[Collective]:
        return [
            Collective(part=part, kind=kind, axes=axes, bytes=size, count=number)
            for (part, kind, axes), (size, number) in self._sums.items()
            if number and setup.layout.parts(axes) > 1
        ]


class _Model:
    """The model's collectives in one training step."""

    def __init__(self, workload: Workload, setup: Setup) -> None:
        self._workload, self._setup, self._total = workload, setup, _Total()
        self._layout, self._config = setup.layout, workload.model
        self._width = FLOAT32 if workload.precision == "fp32" else 2  # bytes of a number in matrix products
        self._micro_batches = setup.accumulation(workload)

    def collectives(self) -> list[Collective]:
        self._embedding()
        for decoder in (False, True):
            for kind in layer_kinds(self._config, self._setup.recompute, decoder=decoder):
                self._layer(kind)
        self._loss()
        return self._total.collectives(self._setup)

    def _add(self, part: str, kind: Kind, axes: tuple[str, ...], bytes_each: int, count: int = 1) -> None:
        self._total.add(part, kind, axes, bytes_each, count * self._micro_batches)

    def _embedding(self) -> None:
        """Processes add up their rows. A row that another process looks up is zero here. Backward sends nothing."""
        if axis := self._layout.axis("V"):
            for tokens in (self._workload.source_tokens, self._workload.target_tokens):
                self._add("embedding", "all_reduce", (axis,), FLOAT32 * tokens * self._config.dim)

    def _loss(self) -> None:
        """Each chunk of tokens sends its largest logit, three sums, and the gradient of its input."""
        axis = self._layout.axis("V")
        if axis is None:
            return
        passes = 2 if recomputes_logits(self._workload, self._setup) else 1
        for tokens in logit_chunks(self._workload, self._setup):
            self._add("logits", "all_reduce", (axis,), FLOAT32 * tokens, passes)
            self._add("logits", "all_reduce", (axis,), FLOAT32 * 3 * tokens, passes)
            self._add("logits", "all_reduce", (axis,), self._width * tokens * self._config.dim)

    def _layer(self, kind: LayerKind) -> None:
        """Add the collectives of one layer.

        Recomputation stops where backward needs nothing more. The sum that ends the recomputed part is sent again only
        if something after it keeps its input, as dropout does.
        """
        source = self._workload.source_tokens
        tokens = self._workload.target_tokens if kind.decoder else source
        whole, selective = kind.recompute == "everything", kind.recompute == "attention"
        last = 2 if self._config.dropout else 1
        passes = 2 if whole else 1
        if axis := self._layout.axis("N"):
            ends = last if selective else passes
            inner = 2 if selective else passes
            self._cut("attention", axis, [tokens], tokens, inner if kind.decoder else ends)
            if kind.decoder:
                self._cut("attention", axis, [tokens, source], tokens, ends)
        if kind.moe:
            self._moe(tokens, kind.decoder, passes, last if whole else 1)
        elif axis := self._layout.axis("H"):
            self._cut("dense", axis, [tokens], tokens, last if whole else 1)

    def _cut(self, part: str, axis: str, entering: Sequence[int], leaving: int, passes: int) -> None:
        """Add the sums around a cut module: of its inputs in backward, and of its output in every forward pass."""
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
        axis = self._layout.axis("H")
        if moe.shared_experts and axis:
            self._cut("dense", axis, [tokens], tokens, passes if moe.conditional else last)
        if moe.conditional and axis:
            self._cut("dense", axis, [tokens], tokens, passes)  # the mixture keeps its two inputs
        if moe.conditional or moe.shared_experts:
            last = passes  # recomputation runs on to the networks that follow
        self._experts_sum(moe, tokens, capacity, _weights(moe, decoder, tokens, capacity), last)

    def _experts_sum(self, moe: MoEConfig, tokens: int, capacity: int | None, weights: int, passes: int) -> None:
        """Add the sums of a layer in which each process computes a share of every token's result.

        The router's weights and the tokens enter in float32.
        """
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
    """Return the number of combine weights of a group: one for each choice, or for each row if experts choose."""
    gate = moe.gate_of(decoder=decoder)
    if gate.experts_choose:
        assert capacity is not None
        return moe.num_experts * capacity
    return round(gate.experts_per_token * tokens)
