"""The functions that build each variant, by name. A new gate of ours is among them without a line here."""

from collections.abc import Callable
from functools import partial

from bench.moe import bounds, ours, peers
from bench.moe.case import Case, Place
from bench.moe.jobs import PARTS
from bench.moe.size import Size
from bench.moe.targets import OURS_WITHOUT_EXPERTS

Build = Callable[[Size, Place], Case]

SLOW = frozenset({"lucidrains", "nllb"})  # they get two runs, which are enough to see a factor of three

VARIANTS: dict[str, Build] = {
    "dense": bounds.dense,
    "ideal": bounds.ideal,
    "ours": ours.layer,
    "ours compiled": partial(ours.layer, compiled=True),
    OURS_WITHOUT_EXPERTS: partial(ours.layer, with_experts=False),
    "deepspeed": peers.deepspeed,
    "lucidrains": peers.lucidrains,
    "nllb": peers.nllb,
    **{f"ours {name}": partial(ours.layer, gate=gate) for name, gate in ours.GATES.items()},
    **{name: partial(ours.part, name=name) for name in PARTS},
}
