"""Mesh-TensorFlow's cost rule on letters (arXiv:1811.02084, sections 5, 6 and 8): what einsums cost one processor.

The general rule, in which any letter may be cut; what our partitioner cuts is `pipeline.parallel.layout`'s business.
A program is a list of einsums over named tensors, as "x_BD,w_DH->h_BH".
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Of one processor: multiply-adds, elements that it all-reduces, elements of the tensors that it holds."""

    multiply_adds: int
    all_reduced: int
    memory: int


@dataclass(frozen=True, kw_only=True)
class _Einsum:
    inputs: tuple[str, ...]
    output: str

    def gradients(self) -> "Iterator[_Einsum]":
        """To each input: an einsum of the output's gradient and the other inputs."""
        for index, tensor in enumerate(self.inputs):
            others = self.inputs[:index] + self.inputs[index + 1 :]
            yield _Einsum(inputs=(f"d{self.output}", *others), output=f"d{tensor}")

    @property
    def loop(self) -> set[str]:
        return set().union(*(_letters(tensor) for tensor in (*self.inputs, self.output)))


def cost(
    program: Sequence[str],
    *,
    sizes: Mapping[str, int],
    mesh: Mapping[str, int],
    layout: Mapping[str, str],
    gradients: bool = True,
) -> Cost:
    """Every einsum runs on the processors' slices, and is all-reduced over the axes that cut a letter it sums over.

    sizes: of letters. mesh: sizes of axes. layout: the axis that cuts a letter, for those that are cut. gradients: the
    backward pass too, to every input. Memory counts the program's tensors once and no gradient. Raises ValueError on an
    axis that does not exist, a size that does not divide, and two letters of one tensor on one axis.
    """
    einsums = [_parse(line) for line in program]
    tensors = {tensor for einsum in einsums for tensor in (*einsum.inputs, einsum.output)}
    _check(tensors, sizes, mesh, layout)

    def elements(letters: Sequence[str] | set[str]) -> int:
        return math.prod(sizes[letter] // (mesh[layout[letter]] if letter in layout else 1) for letter in letters)

    passes = [*einsums, *(each for einsum in einsums for each in einsum.gradients())] if gradients else einsums
    summed = [einsum for einsum in passes if any(mesh[layout[letter]] > 1 for letter in _contracted(einsum, layout))]
    return Cost(
        multiply_adds=sum(elements(einsum.loop) for einsum in passes),
        all_reduced=sum(elements(_letters(einsum.output)) for einsum in summed),
        memory=sum(elements(_letters(tensor)) for tensor in tensors),
    )


def _contracted(einsum: _Einsum, layout: Mapping[str, str]) -> set[str]:
    """Letters that are cut and summed over."""
    return (einsum.loop - set(_letters(einsum.output))) & set(layout)


def _letters(tensor: str) -> str:
    return tensor.rpartition("_")[2]


def _parse(line: str) -> _Einsum:
    inputs, arrow, output = line.partition("->")
    einsum = _Einsum(inputs=tuple(inputs.split(",")), output=output)
    if not arrow or not all("_" in tensor for tensor in (*einsum.inputs, output)):
        raise ValueError(f"{line!r} is no einsum of named tensors; write x_BD,w_DH->h_BH")
    return einsum


def _check(tensors: set[str], sizes: Mapping[str, int], mesh: Mapping[str, int], layout: Mapping[str, str]) -> None:
    for letter, axis in layout.items():
        if axis not in mesh:
            raise ValueError(f"layout.{letter}: there is no axis {axis}; the mesh has {', '.join(mesh)}")
        if sizes[letter] % mesh[axis]:
            raise ValueError(f"layout.{letter}={axis}: {sizes[letter]} does not divide by {mesh[axis]}")
    for tensor in sorted(tensors):
        cutters: dict[str, str] = {}
        for letter in _letters(tensor):
            axis = layout.get(letter, "")
            if axis in cutters:
                raise ValueError(f"layout: {cutters[axis]} and {letter} of {tensor} are both cut over the axis {axis}")
            if axis:
                cutters[axis] = letter
