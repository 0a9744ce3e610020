"""Mesh-TensorFlow's cost rule for letters (arXiv:1811.02084, sections 5, 6 and 8): the cost of einsums on a processor.

This is the general rule, in which any letter may be cut. Our partitioner cuts those of `pipeline.parallel.layout`.
A program is a list of einsums over named tensors, such as "x_BD,w_DH->h_BH".
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost on one processor: multiply-adds, elements that it all-reduces, elements of its tensors."""

    multiply_adds: int
    all_reduced: int
    memory: int


@dataclass(frozen=True, kw_only=True)
class _Einsum:
    inputs: tuple[str, ...]
    output: str

    def gradients(self) -> "Iterator[_Einsum]":
        """Yield the gradient to each input: an einsum of the output's gradient and the other inputs."""
        for index, tensor in enumerate(self.inputs):
            other_inputs = self.inputs[:index] + self.inputs[index + 1 :]
            yield _Einsum(inputs=(f"d{self.output}", *other_inputs), output=f"d{tensor}")

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
    """Return the cost of a program.

    Every einsum runs on slices. Its output is all-reduced over the axes that cut a letter over which it sums.
    sizes: size of each letter.
    mesh: size of each axis.
    layout: the axis that cuts a letter, for letters that are cut.
    gradients: count also the backward pass to every input. Memory counts each tensor once, and no gradients.
    Raises ValueError if an axis does not exist, a size does not divide, or one axis cuts two letters of a tensor.
    """
    einsums = [_parse(line) for line in program]
    tensors = {tensor for einsum in einsums for tensor in (*einsum.inputs, einsum.output)}
    _check(tensors, sizes, mesh, layout)

    def elements(letters: Sequence[str] | set[str]) -> int:
        return math.prod(sizes[letter] // (mesh[layout[letter]] if letter in layout else 1) for letter in letters)

    passes = [*einsums, *(gradient for einsum in einsums for gradient in einsum.gradients())] if gradients else einsums
    summed = [einsum for einsum in passes if any(mesh[layout[letter]] > 1 for letter in _contracted(einsum, layout))]
    return Cost(
        multiply_adds=sum(elements(einsum.loop) for einsum in passes),
        all_reduced=sum(elements(_letters(einsum.output)) for einsum in summed),
        memory=sum(elements(_letters(tensor)) for tensor in tensors),
    )


def _contracted(einsum: _Einsum, layout: Mapping[str, str]) -> set[str]:
    """Return the letters that are cut and over which the einsum sums."""
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
