"""Adafactor (arXiv:1804.04235) as GShard used it, on whole parameters or on the flat partitions of ZeRO.

B matrices of a parameter (experts; otherwise 1), R rows and C columns of each. Adafactor needs means of squares over
rows and columns, and the RMS of the update and of the weights. All of them are sums over elements of a matrix. So
processes that hold parts of a matrix add their sums, and the result does not depend on the cut.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

DECAY = 0.8  # beta2 of update t is 1 - t^-DECAY
CLIP = 1.0  # largest RMS of a matrix's update, before it is multiplied by the learning rate
LEAST_SQUARE = 1e-30  # epsilon1: added to squared gradients
LEAST_SCALE = 1e-3  # epsilon2: updates are scaled by the RMS of the matrix, and by this at least

ROW, COLUMN, FULL = "exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_sq"


@dataclass(frozen=True)
class Matrices:
    """A parameter, read as B matrices [R, C]. factored: false for vectors, which keep all mean squares."""

    B: int
    R: int
    C: int
    factored: bool = True

    @classmethod
    def of(cls, shape: Sequence[int]) -> "Matrices":
        """Read the last two dimensions of a parameter as matrices, and a vector as one row."""
        if len(shape) < 2:
            return cls(1, 1, math.prod(shape), factored=False)
        return cls(math.prod(shape[:-2]), shape[-2], shape[-1])


@dataclass(frozen=True)
class Block:
    """The block that a process has of every matrix: `R` rows from `row` on, and `C` columns from `column` on."""

    row: int
    column: int
    R: int
    C: int


@dataclass(frozen=True)
class Box:
    """A contiguous range of a flat tensor that is a block of matrices.

    place: index of the first element in the flat tensor.
    matrices, rows, columns: the indices of the block in the whole matrices.
    """

    place: int
    matrices: slice
    rows: slice
    columns: slice

    def of(self, flat: Tensor) -> Tensor:
        """Return the range as a view [matrices, rows, columns]."""
        shape = [s.stop - s.start for s in (self.matrices, self.rows, self.columns)]
        return flat[self.place : self.place + math.prod(shape)].view(shape)


@dataclass(frozen=True, kw_only=True)
class Fragment:
    """The part of a parameter that a flat tensor holds.

    matrices: the parameter's matrices, with whole R and C, and the B of this process.
    start: index of the first element in the parameter.
    size: number of elements, which may be 0.
    place: index of the first element in the flat tensor.
    block: the block that the parameter has of its matrices; None if they are whole.
    counted: false if another process of the group counts the same elements.
    """

    name: str
    matrices: Matrices
    start: int
    size: int
    place: int
    block: Block | None = None
    counted: bool = True

    def boxes(self) -> Iterator[Box]:
        """Yield the fragment as few boxes: a part of a row, whole rows, whole matrices, whole rows, a part of a row."""
        block = self.block or Block(0, 0, self.matrices.R, self.matrices.C)
        element, end = self.start, self.start + self.size
        while element < end:
            (row, column), remaining = divmod(element, block.C), end - element
            matrix, row = divmod(row, block.R)
            nb = nr = 1
            nc = min(block.C - column, remaining)
            if nc == block.C:
                nr = min(block.R - row, remaining // block.C)
                if nr == block.R:
                    nb = remaining // (block.R * block.C)
            place = self.place + element - self.start
            element += nb * nr * nc
            row, column = row + block.row, column + block.column
            yield Box(place, slice(matrix, matrix + nb), slice(row, row + nr), slice(column, column + nc))


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The parameters in a tensor that is optimised.

    group: the processes that hold the other parts of the same matrices, with equal names in equal order; None if this
        process has all of them.
    """

    fragments: Sequence[Fragment]
    group: dist.ProcessGroup | None = None
    boxes: dict[str, list[Box]] = field(init=False)

    @classmethod
    def whole(cls, tensor: Tensor, matrices: Matrices) -> "Contents":
        """Return the contents of a tensor that is one whole parameter."""
        return cls(fragments=[Fragment(name="", matrices=matrices, start=0, size=tensor.numel(), place=0)])

    def __post_init__(self) -> None:
        object.__setattr__(self, "boxes", {f.name: list(f.boxes()) for f in self.fragments})


class Sums:
    """Named sums in one buffer, so that one all-reduce completes them."""

    def __init__(self, shapes: dict[tuple[str, str], tuple[int, ...]], like: Tensor) -> None:
        sizes = [math.prod(shape) for shape in shapes.values()]
        self._buffer = like.new_zeros(sum(sizes))
        parts = torch.split(self._buffer, sizes)
        self._views = {key: part.view(shape) for (key, shape), part in zip(shapes.items(), parts, strict=True)}

    def __getitem__(self, key: tuple[str, str]) -> Tensor:
        return self._views[key]

    def reduce(self, group: dist.ProcessGroup | None) -> None:
        if group is not None:
            dist.all_reduce(self._buffer, group=group)


class Adafactor(torch.optim.Optimizer):
    """Adafactor with a factored second moment, no first moment, and clipped updates, for float32 or float64.

    Updates are scaled by the RMS of the matrix that they change. A tensor is read as `Matrices.of` its shape, unless
    `lay_out` gives its contents. Each matrix is optimised by itself.

    lr: relative to that RMS. GShard's is 1 / sqrt(max(t, 10000)) at update t.
    weight_decay: decoupled as in AdamW. An update removes the share lr · weight_decay of the weights, without the RMS.
    """

    def __init__(self, params: Any, lr: float, weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})
        self._contents: dict[Tensor, Contents] = {}

    def lay_out(self, tensor: Tensor, contents: Contents) -> None:
        """Set the contents of a contiguous tensor of any shape."""
        self._contents[tensor] = contents

    def allocate(self, tensor: Tensor, updates: int) -> None:
        """Give a tensor the state that it has after `updates` updates, with zeros for moments.

        Rows [B, R] and columns [B, C] of each matrix are whole on every process.
        """
        fragments = self._contents_of(tensor).fragments
        factored = [f for f in fragments if f.matrices.factored]
        state = self.state[tensor]
        state["step"] = updates
        state[ROW] = {f.name: tensor.new_zeros(f.matrices.B, f.matrices.R) for f in factored}
        state[COLUMN] = {f.name: tensor.new_zeros(f.matrices.B, f.matrices.C) for f in factored}
        if len(factored) < len(fragments):
            state[FULL] = torch.zeros_like(tensor, requires_grad=False)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the weights. This overwrites gradients. A collective of each tensor's processes."""
        for group in self.param_groups:
            for tensor in group["params"]:
                if tensor.grad is not None:
                    self._update(tensor, group["lr"], group["weight_decay"])

    def _contents_of(self, tensor: Tensor) -> Contents:
        if tensor not in self._contents:
            self._contents[tensor] = Contents.whole(tensor, Matrices.of(tensor.shape))
        return self._contents[tensor]

    def _update(self, tensor: Tensor, lr: float, weight_decay: float) -> None:
        contents = self._contents_of(tensor)
        if "step" not in self.state[tensor]:
            self.allocate(tensor, 0)
        weights, gradient = tensor.detach().view(-1), tensor.grad.view(-1)  # type: ignore[union-attr]
        scales = self._average_squares(tensor, contents, weights, gradient)
        updates = self._normalise(tensor, contents, gradient)
        if weight_decay:
            weights.mul_(1 - lr * weight_decay)
        for f in contents.fragments:
            size = f.matrices.R * f.matrices.C
            clip_B = ((updates[f.name, "update"] / size).sqrt() / CLIP).clamp(min=1.0)
            rate_B = lr * scales[f.name] / clip_B
            for box in contents.boxes[f.name]:
                box.of(weights).addcmul_(box.of(gradient), rate_B[box.matrices, None, None], value=-1.0)

    def _average_squares(
        self, tensor: Tensor, contents: Contents, weights: Tensor, gradient: Tensor
    ) -> dict[str, Tensor]:
        """Update the means of squared gradients. Return the scale of updates, [B], of each parameter's matrices."""
        state = self.state[tensor]
        state["step"] += 1
        beta2 = 1 - float(state["step"]) ** -DECAY
        shapes: dict[tuple[str, str], tuple[int, ...]] = {}
        for f in contents.fragments:
            m = f.matrices
            shapes[f.name, "weight"] = (m.B,)
            if m.factored:
                shapes |= {(f.name, ROW): (m.B, m.R), (f.name, COLUMN): (m.B, m.C)}
        sums = Sums(shapes, weights)
        for f in contents.fragments:
            for box in contents.boxes[f.name]:
                squares = box.of(gradient).square().add_(LEAST_SQUARE)
                if not f.matrices.factored:
                    box.of(state[FULL].view(-1)).mul_(beta2).add_(squares, alpha=1 - beta2)
                if not f.counted:
                    continue
                if f.matrices.factored:
                    sums[f.name, ROW][box.matrices, box.rows] += squares.sum(dim=2)
                    sums[f.name, COLUMN][box.matrices, box.columns] += squares.sum(dim=1)
                sums[f.name, "weight"][box.matrices] += box.of(weights).square().sum(dim=(1, 2))
        sums.reduce(contents.group)
        scales = {}
        for f in contents.fragments:
            m = f.matrices
            scales[f.name] = (sums[f.name, "weight"] / (m.R * m.C)).sqrt().clamp(min=LEAST_SCALE)
            if m.factored:
                state[ROW][f.name].mul_(beta2).add_(sums[f.name, ROW] / m.C, alpha=1 - beta2)
                state[COLUMN][f.name].mul_(beta2).add_(sums[f.name, COLUMN] / m.R, alpha=1 - beta2)
        return scales

    def _normalise(self, tensor: Tensor, contents: Contents, gradient: Tensor) -> Sums:
        """Divide the gradient by the root of its mean squares, in place. Return sums of squares of the result."""
        state = self.state[tensor]
        sums = Sums({(f.name, "update"): (f.matrices.B,) for f in contents.fragments}, gradient)
        for f in contents.fragments:
            if f.matrices.factored:
                row_BR, column_BC = state[ROW][f.name], state[COLUMN][f.name]
                by_row_BR = (row_BR / row_BR.mean(dim=1, keepdim=True)).rsqrt_()
                by_column_BC = column_BC.rsqrt()
            for box in contents.boxes[f.name]:
                part = box.of(gradient)
                if f.matrices.factored:
                    part.mul_(by_row_BR[box.matrices, box.rows, None])
                    part.mul_(by_column_BC[box.matrices, None, box.columns])
                else:
                    part.mul_(box.of(state[FULL].view(-1)).rsqrt())
                if f.counted:
                    sums[f.name, "update"][box.matrices] += part.square().sum(dim=(1, 2))
        sums.reduce(contents.group)
        return sums
