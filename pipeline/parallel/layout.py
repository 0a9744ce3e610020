"""Layouts: which letters of the model's tensors are cut over which axes of the device mesh (Mesh-TensorFlow,
arXiv:1811.02084, section 3; GShard, arXiv:2006.16668, section 3.2).

G groups, S tokens of a group, E experts, C capacity, M model, H hidden (of feed-forward networks and experts), N heads,
D head dim, V vocabulary. Free of torch so that it loads fast.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pipeline.spelling import nearest_names, suggestion

AXES = ("data", "expert", "model")
GSHARD: Mapping[str, tuple[str, ...]] = {"G": ("data", "expert"), "E": ("expert",)}

CUTTABLE = {"G": "groups", "E": "experts", "H": "hidden units", "N": "heads", "V": "vocabulary"}

# And why not the others
WHOLE = {
    "S": "tokens of a group meet in attention and gating",
    "M": "it is in every activation and on both sides of H, so each matmul would end in an all-reduce",
    "D": "N cuts the same tensors without a sum inside of attention",
    "C": "slots of one expert: E and G cut what they are in",
}

# The model's tensors, for legality. The router's have an E that is never cut, so they are named without it.
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
    """table: axes of the mesh by letter. sizes: of every axis of `AXES`.

    Tensors are cut on G over all of its axes until dispatch; dispatched tensors and experts' weights are cut on E
    instead over the axis that both name, and the hand-over is an all-to-all (GShard). Raises ValueError where a letter
    or axis does not exist, or two letters of one tensor are cut over one axis.
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
        """Groups over all of `world` processes, experts over `ep` of them."""
        return cls(table=GSHARD, sizes={"data": world // ep, "expert": ep, "model": 1})

    @property
    def world(self) -> int:
        return math.prod(self.sizes.values())

    def parts(self, axes: Iterable[str]) -> int:
        """Into how many parts something falls that is cut over these axes."""
        return math.prod(self.sizes[axis] for axis in axes)

    def cut(self, letters: str) -> dict[str, int]:
        """Of a tensor with these letters: the dimension that each axis cuts. Axes of size 1 count."""
        return self._cut(f"tensor {letters}", letters)

    def axis(self, letter: str) -> str | None:
        """That cuts E, H, N or V, if it has more than one process."""
        axes = self.table.get(letter, ())
        return axes[0] if axes and self.sizes[axes[0]] > 1 else None

    @property
    def batch_axes(self) -> tuple[str, ...]:
        """Over which the groups of a batch are dealt, in the order of `AXES`."""
        return tuple(axis for axis in AXES if axis in self.table.get("G", ()))

    @property
    def expert_copies(self) -> tuple[str, ...]:
        """Over which gradients of experts' weights are added up: axes of the batch that do not cut experts."""
        return tuple(axis for axis in self.batch_axes if axis not in self.table.get("E", ()))

    @property
    def copy_axes(self) -> tuple[str, ...]:
        """Whose processes have the same groups."""
        return tuple(axis for axis in AXES if axis not in self.batch_axes)

    @property
    def handed_over(self) -> bool:
        """Whether tokens travel to experts by all-to-all, because E takes an axis from G."""
        return self.axis("E") in self.batch_axes

    def replication(self, letters: str) -> float:
        """How often a computation whose loop has these letters is done, all processes together: 1 is once."""
        return self.world / self.parts(self.cut(letters))

    def _cut(self, name: str, letters: str) -> dict[str, int]:
        found: dict[str, int] = {}
        experts = self.table.get("E", ()) if "E" in letters else ()
        for dim, letter in enumerate(letters):
            for axis in self.table.get(letter, ()):
                if letter == "G" and axis in experts:
                    continue
                if axis in found:
                    raise ValueError(
                        f"layout: {letters[found[axis]]} and {letter} of {name} are both cut over the axis {axis}; "
                        f"give one of them another axis, or leave it out"
                    )
                found[axis] = dim
        return found


def _no_letter(name: str) -> str:
    """What to say of a letter that no layout cuts, or of a word in place of one."""
    if name in WHOLE:
        return f"no layout cuts {name} ({WHOLE[name]}); there are {', '.join(CUTTABLE)}"
    known = {**{letter.lower(): letter for letter in CUTTABLE}, **{word: letter for letter, word in CUTTABLE.items()}}
    near = nearest_names(name.lower(), known, most=1)
    there_are = ", ".join(f"{letter} ({word})" for letter, word in CUTTABLE.items())
    return "there is no such letter; " + (
        f"did you mean {known[near[0]]} ({CUTTABLE[known[near[0]]]})?" if near else f"there are {there_are}"
    )
