"""What a layout asks of a recipe's sizes, and what it makes several processes compute; free of torch, so that it is
known before anything is allocated.

That no tensor has two letters on one axis `Layout` checks itself.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pipeline.batch.config import BatchConfig, GroupShape
from pipeline.model.config import ModelConfig
from pipeline.model.flops import forward_parts
from pipeline.parallel.layout import CUTTABLE, Layout
from pipeline.vocab.config import VocabConfig

SIZE_OF = {"expert": "runtime.ep", "model": "runtime.mp"}  # data takes the processes that they leave
EXPENSIVE = 0.05  # share of a step's FLOPs from which work that is done several times is worth a warning
SEARCHED = 64  # multiples among which a legal size is looked for

# The letters of the loops that each kind of work is, and of those the ones that may be cut
LOOPS = {"attention": "GSND", "dense": "GSH", "router": "GS", "experts": "EGCH", "logits": "GSV"}
CALLED = {
    "dense": "the dense feed-forward",
    "router": "routing",
    "experts": "each expert",
    "logits": "the loss over the vocabulary",
}


@dataclass(frozen=True, kw_only=True)
class Size:
    """One dimension of a tensor that the layout cuts. of: the configuration that has it, as `field`. key: of the user's
    configuration."""

    key: str
    letter: str
    tensor: str
    of: Any
    field: str

    @property
    def value(self) -> int:
        return int(getattr(self.of, self.field))

    def is_legal(self, size: int) -> bool:
        """Whether the configuration would be one with another size."""
        with suppress(ValueError):
            replace(self.of, **{self.field: size})
            return True
        return False


def check_sizes(layout: Layout, *, model: ModelConfig, batch: BatchConfig, vocab: VocabConfig) -> None:
    """Raise ValueError where the layout cuts something that does not divide, naming the nearest sizes that do."""
    for size in _sizes(model, batch, vocab):
        parts = layout.parts(layout.table.get(size.letter, ()))
        if size.value % parts:
            nearest = " or ".join(str(n) for n in _nearest(size, parts))
            others = f"a number of processes that divides {size.value}"
            remedy = f"{nearest}, or {others}" if nearest and size.letter == "G" else nearest or others
            raise ValueError(
                f"{size.key}={size.value} ({size.letter} of {size.tensor}) is not divisible by "
                f"{_divisor(layout, size.letter)}; choose {remedy}"
            )


def check_vocabulary(layout: Layout, vocab: VocabConfig, *, source_size: int, target_size: int) -> None:
    """The same for the sizes of the trained vocabulary, which are smaller where a text had not enough pieces."""
    parts = layout.parts(layout.table.get("V", ()))
    for side, size in (("source", source_size), ("target", target_size)):
        if size % parts:
            asked = getattr(vocab, f"{side}_size")
            field = "source_size and target_size" if vocab.shared else f"{side}_size"
            raise ValueError(
                f"vocab.{field}={asked}: the text has pieces for {size} alone (V of embedding_VM), which is not "
                f"divisible by {_divisor(layout, 'V')}; choose {size // parts * parts}"
            )


def cautions(layout: Layout, *, model: ModelConfig, shape: GroupShape, target_vocabulary: int) -> list[str]:
    """What several processes compute alike, for people to read before a run. shape: of most groups."""
    shape = replace(shape, target=shape.target or shape.source)
    flops = {part: each.of_shape(shape) for part, each in forward_parts(model, target_vocabulary).items()}
    total, whole, found = sum(flops.values()), 0.0, []
    for part, of_part in flops.items():
        times, share = layout.replication(LOOPS[part]), of_part / total
        whole += times * share
        if times > 1 and share >= EXPENSIVE:
            found.append(
                f"{CALLED.get(part, part)} is computed {times:g} times over ({_why(layout, LOOPS[part])}), "
                f"{100 * share:.0f} % of a step's FLOPs"
            )
    return [f"layout: {'; '.join(found)}; the whole step has {whole:.3g} times one device's FLOPs"] if found else []


def _sizes(model: ModelConfig, batch: BatchConfig, vocab: VocabConfig) -> Iterator[Size]:
    """All that a layout may cut."""
    moe, layers = model.moe, (model.encoder_layers, model.decoder_layers)
    num_layers, num_moe = sum(layers), sum(model.num_moe_layers(n) for n in layers)
    yield Size(key="batch.groups_per_step", letter="G", tensor="x_GSM", of=batch, field="groups_per_step")
    yield Size(key="model.heads", letter="N", tensor="wq_MND", of=model, field="heads")
    if num_moe < num_layers or moe.conditional:
        yield Size(key="model.ffn_dim", letter="H", tensor="wi_MH", of=model, field="ffn_dim")
    if num_moe:
        yield Size(key="model.moe.expert_dim", letter="H", tensor="wi_EMH", of=moe, field="expert_dim")
        yield Size(key="model.moe.num_experts", letter="E", tensor="wi_EMH", of=moe, field="num_experts")
    sides = ["source_size and vocab.target_size"] if vocab.shared else ["source_size", "target_size"]
    for side in sides:
        of, field = replace(vocab, shared=False), side.split()[0]
        yield Size(key=f"vocab.{side}", letter="V", tensor="embedding_VM", of=of, field=field)


def _nearest(size: Size, parts: int) -> list[int]:
    """The largest legal size below, and the smallest above."""
    first = size.value // parts
    below = (n * parts for n in range(first, max(first - SEARCHED, 0), -1))
    above = (n * parts for n in range(first + 1, first + SEARCHED))
    found = [next((n for n in sizes if size.is_legal(n)), 0) for sizes in (below, above)]
    return [n for n in found if n]


def _divisor(layout: Layout, letter: str) -> str:
    axes = layout.table[letter]
    parts = layout.parts(axes)
    if len(axes) == 1 and axes[0] in SIZE_OF:
        return f"{SIZE_OF[axes[0]]}={parts}, the axis {axes[0]}"
    if parts == layout.world:
        return f"runtime.processes={parts}"
    return f"the {parts} processes of {' and '.join(axes)}"


def _why(layout: Layout, letters: str) -> str:
    """Which letters might have been cut over which axes."""
    cut = layout.cut(letters)
    axes = [axis for axis, size in layout.sizes.items() if size > 1 and axis not in cut]
    of = [letter for letter in letters if letter in CUTTABLE]
    none = f"neither {' nor '.join(of)} is" if of[1:] else f"{of[0]} is not"
    return f"{none} cut over {' or '.join(axes)}"
