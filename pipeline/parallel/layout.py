"""Layouts say which letters of the model's tensors are cut over which axes of the device mesh.

See Mesh-TensorFlow (arXiv:1811.02084, section 3) and GShard (arXiv:2006.16668, section 3.2).

G groups, S tokens of a group, E experts, C capacity, M model, H hidden (of feed-forward networks and experts), N heads,
D head dim, V vocabulary. This module does not import torch, so that it loads fast.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from pipeline.spelling import nearest_names, suggestion

AXES = ("data", "expert", "model")
GSHARD: Mapping[str, tuple[str, ...]] = {"G": ("data", "expert"), "E": ("expert",)}

CUTTABLE = {"G": "groups", "E": "experts", "H": "hidden units", "N": "heads", "V": "vocabulary"}

# The letters that no layout cuts, with the reasons
WHOLE = {
    "S": "tokens of a group meet in attention and gating",
    "M": "it is in every activation and on both sides of H, so each matmul would end in an all-reduce",
    "D": "N cuts the same tensors without a sum inside of attention",
    "C": "slots of one expert: E and G cut what they are in",
}

# The model's tensors, for legality. The E of the router's tensors is never cut, so their letters leave it out.
TENSORS = {
    "x_GSM": "GSM",
    "gates_GS(E)": "GS",
    "heads_GSND": "GSND",
    "hidden_GSH": "GSH",
    "logits_GSV": "GSV",
    "dispatched_EGCM": "EGCM",
    "hidden_EGCH": "EGCH",
    "wq_MND": "MND",
    "wo_NDM": "NDM",
    "wi_MH": "MH",
    "wo_HM": "HM",
    "wi_EMH": "EMH",
    "wo_EHM": "EHM",
    "embedding_VM": "VM",
}


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A layout over a mesh of given sizes.

    Before dispatch, tensors are cut on G over all axes of G. If E shares an axis with G, dispatched tensors and the
    weights of experts are cut on E there instead. The change between them is an all-to-all, as in GShard.

    table: axes of the mesh by letter.
    sizes: number of processes on each axis of `AXES`.

    Raises ValueError if a letter or axis does not exist, or if two letters of one tensor are cut over one axis.
    """

    table: Mapping[str, tuple[str, ...]]
    sizes: Mapping[str, int]

    def __post_init__(self) -> None:
        for letter, axes in self.table.items():
            if letter not in CUTTABLE:
                raise ValueError(f"layout.{letter}: {_no_letter(letter)}")
            for axis in axes:
                if axis not in AXES:
                    raise ValueError(f"layout.{letter}: there is no axis {axis}{suggestion(axis, AXES)}")
            if len(set(axes)) < len(axes):
                raise ValueError(f"layout.{letter}=[{', '.join(axes)}] names an axis twice")
            if len(axes) > 1 and letter != "G":
                raise ValueError(
                    f"layout.{letter}=[{', '.join(axes)}]: G alone may be cut over several axes; choose one of them"
                )
        for name, letters in TENSORS.items():
            self._cut(name, letters)

    def __hash__(self) -> int:
        return hash((frozenset(self.table.items()), frozenset(self.sizes.items())))

    @classmethod
    def gshard(cls, world: int, ep: int) -> "Layout":
        """Return GShard's layout: groups are cut over all `world` processes, experts over `ep` of them."""
        return cls(table=GSHARD, sizes={"data": world // ep, "expert": ep, "model": 1})

    @property
    def world(self) -> int:
        return math.prod(self.sizes.values())

    def parts(self, axes: Iterable[str]) -> int:
        """Return the number of parts of a tensor that is cut over these axes."""
        return math.prod(self.sizes[axis] for axis in axes)

    def cut(self, letters: str) -> dict[str, int]:
        """Return the dimension that each axis cuts, of a tensor with these letters. Axes of size 1 count."""
        return self._cut(f"tensor {letters}", letters)

    def axis(self, letter: str) -> str | None:
        """Return the axis that cuts E, H, N or V; None if it has only one process."""
        axes = self.table.get(letter, ())
        return axes[0] if axes and self.sizes[axes[0]] > 1 else None

    def near(self, axes: Iterable[str], node: int) -> int:
        """Return how many of the processes that differ in these axes alone are on one node, which has `node` processes.

        Ranks count the last axis of `AXES` first, and a node takes `node` ranks in order. If the processes lie unevenly
        on the nodes, the smallest number on a node counts.
        """
        if self.world <= node:
            return self.parts(axes)
        near, stride = 1, 1
        for axis in reversed(AXES):
            if axis in axes and node % stride == 0:
                near *= math.gcd(self.sizes[axis], node // stride)
            stride *= self.sizes[axis]
        return near

    @property
    def batch_axes(self) -> tuple[str, ...]:
        """The axes over which the groups of a batch are dealt, in the order of `AXES`."""
        return tuple(axis for axis in AXES if axis in self.table.get("G", ()))

    @property
    def expert_copies(self) -> tuple[str, ...]:
        """The axes over which gradients of experts are added: axes of the batch that do not cut experts."""
        return tuple(axis for axis in self.batch_axes if axis not in self.table.get("E", ()))

    @property
    def copy_axes(self) -> tuple[str, ...]:
        """The axes whose processes have the same groups."""
        return tuple(axis for axis in AXES if axis not in self.batch_axes)

    @property
    def handed_over(self) -> bool:
        """True if tokens travel to experts by an all-to-all, because E and G share an axis."""
        return self.axis("E") in self.batch_axes

    def replication(self, letters: str) -> float:
        """Return the number of processes that do the same part of a computation whose loop has these letters."""
        return self.world / self.parts(self.cut(letters))

    def _cut(self, name: str, letters: str) -> dict[str, int]:
        dims: dict[str, int] = {}
        experts = self.table.get("E", ()) if "E" in letters else ()
        for dim, letter in enumerate(letters):
            for axis in self.table.get(letter, ()):
                if letter == "G" and axis in experts:
                    continue
                if axis in dims:
                    raise ValueError(
                        f"layout: {letters[dims[axis]]} and {letter} of {name} are both cut over the axis {axis}; "
                        f"give one of them another axis, or leave it out"
                    )
                dims[axis] = dim
        return dims


# A layout in a configuration: for each letter the axis that cuts it, or several axes, or none.
Table = Mapping[str, str | list[str] | None]


class Topology(Protocol):
    """The numbers of processes in a configuration: in all, that share the experts, and that share a model."""

    @property
    def processes(self) -> int: ...
    @property
    def ep(self) -> int: ...
    @property
    def mp(self) -> int: ...


def layout_of(table: Table, topology: Topology) -> Layout:
    """Return the layout of a configuration: axis expert has ep processes, model has mp, and data has the others."""
    cut = {letter: (axes,) if isinstance(axes, str) else tuple(axes) for letter, axes in table.items() if axes}
    ep, mp = topology.ep, topology.mp
    return Layout(table=cut, sizes={"data": topology.processes // (ep * mp), "expert": ep, "model": mp})


def _no_letter(name: str) -> str:
    """Return the message about a letter that no layout cuts, or about a word in its place."""
    if name in WHOLE:
        return f"no layout cuts {name} ({WHOLE[name]}); there are {', '.join(CUTTABLE)}"
    letters = {**{letter.lower(): letter for letter in CUTTABLE}, **{word: letter for letter, word in CUTTABLE.items()}}
    near = [letters[word] for word in nearest_names(name.lower(), letters, most=1)]
    choices = ", ".join(f"{letter} ({CUTTABLE[letter]})" for letter in near or CUTTABLE)
    return "there is no such letter; " + (f"did you mean {choices}?" if near else f"there are {choices}")
