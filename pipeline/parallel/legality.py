"""Check the sizes of a recipe against a layout, and warn of work that several processes repeat.

This module does not import torch, so that errors come before anything is allocated. `Layout` itself checks that no
tensor has two letters on one axis.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pipeline.batch.config import BatchConfig, GroupShape
from pipeline.model.config import ModelConfig
from pipeline.model.flops import forward_parts
from pipeline.model.moe.gates.top_k_config import TopKConfig
from pipeline.parallel.layout import CUTTABLE, Layout
from pipeline.vocab.config import VocabConfig

SIZE_OF = {"expert": "runtime.ep", "model": "runtime.mp"}  # the axis data takes the other processes
EXPENSIVE = 0.05  # smallest share of a step's FLOPs for which repeated work deserves a warning
SEARCHED = 64  # number of multiples that are tried to find a legal size

# The letters of the loop of each kind of work
LOOPS = {"attention": "GSND", "dense": "GSH", "router": "GS", "experts": "EGCH", "logits": "GSV"}
CALLED = {
    "dense": "the dense feed-forward",
    "router": "routing",
    "experts": "each expert",
    "logits": "the loss over the vocabulary",
}


@dataclass(frozen=True, kw_only=True)
class Size:
    """The size of one dimension that a layout may cut.

    key: the user's name of the size.
    letter, tensor: the dimension and a tensor that has it.
    config, field: where the value is.
    """

    key: str
    letter: str
    tensor: str
    config: Any
    field: str

    @property
    def value(self) -> int:
        return int(getattr(self.config, self.field))

    def is_legal(self, size: int) -> bool:
        """Return true if the configuration is valid with this size."""
        with suppress(ValueError):
            replace(self.config, **{self.field: size})
            return True
        return False


def check_sizes(layout: Layout, *, model: ModelConfig, batch: BatchConfig, vocab: VocabConfig) -> None:
    """Raise ValueError if a size is not divisible by its number of parts, or if the layout cuts a model with biases.

    The message has the nearest legal sizes.
    """
    if model.biases and (cut := [letter for letter in "HN" if layout.axis(letter)]):
        raise ValueError(
            f"layout.{cut[0]}={layout.axis(cut[0])} with model.biases=true: each process that shares a projection "
            "would add its bias; set runtime.mp=1, or a layout that does not cut H and N"
        )
    for size in _sizes(model, batch, vocab):
        parts = layout.parts(layout.table.get(size.letter, ()))
        if size.value % parts:
            nearest = " or ".join(str(n) for n in _nearest(size, parts))
            processes = f"a number of processes that divides {size.value}"
            remedy = f"{nearest}, or {processes}" if nearest and size.letter == "G" else nearest or processes
            raise ValueError(
                f"{size.key}={size.value} ({size.letter} of {size.tensor}) is not divisible by "
                f"{_divisor(layout, size.letter)}; choose {remedy}"
            )


def check_translating(layout: Layout, *, setting: str, model: ModelConfig) -> None:
    """Raise ValueError if the layout cuts what a model that is trained by it needs whole to translate.

    setting: the setting that lets it translate, with its value.
    """
    for letter, axis in ((letter, layout.axis(letter)) for letter in "EHNV"):
        if axis is None or (letter == "E" and (layout.handed_over or not model.moe.num_experts)):
            continue
        raise ValueError(
            f"{setting} translates with the model in training, and layout.{letter}={axis} cuts its {CUTTABLE[letter]} "
            f"over {layout.sizes[axis]} processes, which training alone can do; set train.validate_metric=loss, or "
            "layout=gshard, by which groups and experts alone are cut"
        )


def check_vocabulary(layout: Layout, vocab: VocabConfig, *, source_size: int, target_size: int) -> None:
    """Check the sizes of a trained vocabulary, which are smaller if the text has too few pieces. Raises ValueError."""
    parts = layout.parts(layout.table.get("V", ()))
    for side, size in (("source", source_size), ("target", target_size)):
        if size % parts:
            setting = getattr(vocab, f"{side}_size")
            field = "source_size and target_size" if vocab.shared else f"{side}_size"
            if vocab.from_run:
                raise ValueError(
                    f"vocab.from_run={vocab.from_run}: the vocabulary has {size} pieces (V of embedding_VM), which is "
                    f"not divisible by {_divisor(layout, 'V')}; set runtime.mp=1, or a layout that does not cut V"
                )
            raise ValueError(
                f"vocab.{field}={setting}: the text has pieces for {size} alone (V of embedding_VM), which is not "
                f"divisible by {_divisor(layout, 'V')}; choose {size // parts * parts}"
            )


def cautions(layout: Layout, *, model: ModelConfig, shape: GroupShape, target_vocabulary: int) -> list[str]:
    """Return warnings, for people, about work that several processes repeat. shape: the shape of most groups."""
    shape = replace(shape, target=shape.target or shape.source)
    flops = {part: count.of_shape(shape) for part, count in forward_parts(model, target_vocabulary).items()}
    total, whole, repeated = sum(flops.values()), 0.0, []
    for part, part_flops in flops.items():
        times, share = layout.replication(LOOPS[part]), part_flops / total
        whole += times * share
        if times > 1 and share >= EXPENSIVE:
            repeated.append(
                f"{CALLED.get(part, part)} is computed {times:g} times over ({_why(layout, LOOPS[part])}), "
                f"{100 * share:.0f} % of a step's FLOPs"
            )
    if not repeated:
        return []
    return [f"layout: {'; '.join(repeated)}; the whole step has {whole:.3g} times one device's FLOPs"]


def node_cautions(layout: Layout, *, model: ModelConfig, node: int) -> list[str]:
    """Return warnings, for people, about gates whose nodes are not those on which a layout puts the experts.

    node: number of processes on a node.
    """
    axis = layout.axis("E") if model.moe.num_experts else None
    if axis is None or not layout.handed_over:
        return []
    nodes, moe, texts = layout.sizes[axis] // layout.near((axis,), node), model.moe, []
    for name, gate in (("gate", moe.gate), ("encoder_gate", moe.encoder_gate)):
        if isinstance(gate, TopKConfig) and gate.limits_nodes and gate.expert_nodes % nodes:
            texts.append(
                f"model.moe.{name}.expert_nodes={gate.expert_nodes}, but {SIZE_OF.get(axis, 'the axis data')} spreads "
                f"the experts over {nodes} nodes of {node} processes each, so a token may visit more than "
                f"max_nodes={gate.max_nodes} of them; a new model may have expert_nodes={nodes}"
            )
    return texts


def _sizes(model: ModelConfig, batch: BatchConfig, vocab: VocabConfig) -> Iterator[Size]:
    """Yield all sizes that a layout may cut."""
    moe, layers = model.moe, (model.encoder_layers, model.decoder_layers)
    num_layers, num_moe = sum(layers), sum(model.num_moe_layers(n) for n in layers)
    yield Size(key="batch.groups_per_step", letter="G", tensor="x_GSM", config=batch, field="groups_per_step")
    yield Size(key="model.heads", letter="N", tensor="wq_MND", config=model, field="heads")
    if num_moe < num_layers or moe.conditional:
        yield Size(key="model.ffn_dim", letter="H", tensor="wi_MH", config=model, field="ffn_dim")
    if num_moe:
        yield Size(key="model.moe.expert_dim", letter="H", tensor="wi_EMH", config=moe, field="expert_dim")
        yield Size(key="model.moe.num_experts", letter="E", tensor="wi_EMH", config=moe, field="num_experts")
    sides = ["source_size and vocab.target_size"] if vocab.shared else ["source_size", "target_size"]
    for side in sides:
        separate, field = replace(vocab, shared=False), side.split()[0]
        yield Size(key=f"vocab.{side}", letter="V", tensor="embedding_VM", config=separate, field=field)


def _nearest(size: Size, parts: int) -> list[int]:
    """Return the largest legal size below and the smallest one above."""
    first = size.value // parts
    below = (n * parts for n in range(first, max(first - SEARCHED, 0), -1))
    above = (n * parts for n in range(first + 1, first + SEARCHED))
    nearest = [next((n for n in sizes if size.is_legal(n)), 0) for sizes in (below, above)]
    return [n for n in nearest if n]


def _divisor(layout: Layout, letter: str) -> str:
    axes = layout.table[letter]
    parts = layout.parts(axes)
    if len(axes) == 1 and axes[0] in SIZE_OF:
        return f"{SIZE_OF[axes[0]]}={parts}, the axis {axes[0]}"
    if parts == layout.world:
        return f"runtime.processes={parts}"
    return f"the {parts} processes of {' and '.join(axes)}"


def _why(layout: Layout, letters: str) -> str:
    """Return the letters that the layout could have cut, and the axes."""
    cut = layout.cut(letters)
    axes = [axis for axis, size in layout.sizes.items() if size > 1 and axis not in cut]
    whole = [letter for letter in letters if letter in CUTTABLE]
    subject = f"neither {' nor '.join(whole)} is" if whole[1:] else f"{whole[0]} is not"
    return f"{subject} cut over {' or '.join(axes)}"
