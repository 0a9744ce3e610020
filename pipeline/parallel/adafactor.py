"""Adafactor (arXiv:1804.04235) as GShard used it, on whole parameters or on the flat partitions of ZeRO.

B matrices side by side (experts; otherwise 1), R rows and C columns of each. Everything that Adafactor computes of a
matrix - means of squares over rows and columns, the RMS of its update and of its weights - is a sum over its elements,
so processes that hold parts of it add up their sums: the result does not depend on the cut.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

DECAY = 0.8  # beta2 of update t is 1 - t^-DECAY
CLIP = 1.0  # largest RMS of a matrix's update before the learning rate
LEAST_SQUARE = 1e-30  # epsilon1: added to squared gradients
LEAST_SCALE = 1e-3  # epsilon2: least RMS of a matrix by which its updates are scaled

ROW, COLUMN, FULL = "exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_sq"


@dataclass(frozen=True)
class Matrices:
    """A parameter read as B matrices [R, C]. factored: False for vectors, whose squares are kept one by one."""

    B: int
    R: int
    C: int
    factored: bool = True

    @classmethod
    def of(cls, shape: Sequence[int]) -> "Matrices":
        """Matrices over the last two dimensions."""
        if len(shape) < 2:
            return cls(1, 1, math.prod(shape), factored=False)
        return cls(math.prod(shape[:-2]), shape[-2], shape[-1])


@dataclass(frozen=True)
class Block:
    """What a process has of every matrix where R or C is cut over processes: `R` rows from `row` on, and `C`
    columns from `column` on."""

    row: int
    column: int
    R: int
    C: int


@dataclass(frozen=True)
class Box:
    """A run of a flat tensor that is a block of matrices: place is its first element there. rows, columns: of the whole
    matrices."""

    place: int
    matrices: slice
    rows: slice
    columns: slice

    def of(self, flat: Tensor) -> Tensor:
        """The run as a view [matrices, rows, columns]."""
        shape = [s.stop - s.start for s in (self.matrices, self.rows, self.columns)]
        return flat[self.place : self.place + math.prod(shape)].view(shape)


@dataclass(frozen=True, kw_only=True)
class Fragment:
    """What a flat tensor holds of a parameter: `size` elements (0: none) from the parameter's element `start` on, at
    `place`.

    matrices: whole but for B. block: what the parameter has of them, None for all. counted: False where another process
    of the group counts the same elements.
    """

    name: str
    matrices: Matrices
    start: int
    size: int
    place: int
    block: Block | None = None
    counted: bool = True

    def boxes(self) -> Iterator[Box]:
        """The fragment cut into few blocks: parts of rows, whole rows, whole matrices, whole rows, a part of a row."""
        block = self.block or Block(0, 0, self.matrices.R, self.matrices.C)
        element, end = self.start, self.start + self.size
        while element < end:
            (row, column), left = divmod(element, block.C), end - element
            matrix, row = divmod(row, block.R)
            nb = nr = 1
            nc = min(block.C - column, left)
            if nc == block.C:
                nr = min(block.R - row, left // block.C)
                if nr == block.R:
                    nb = left // (block.R * block.C)
            place = self.place + element - self.start
            element += nb * nr * nc
            row, column = row + block.row, column + block.column
            yield Box(place, slice(matrix, matrix + nb), slice(row, row + nr), slice(column, column + nc))


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What a tensor that is optimised holds. group: the processes that hold the rest of the same matrices, each
    with the same names in the same order; None where there is no rest."""

    fragments: Sequence[Fragment]
    group: dist.ProcessGroup | None = None
    boxes: dict[str, list[Box]] = field(init=False)

    @classmethod
    def whole(cls, tensor: Tensor, matrices: Matrices) -> "Contents":
        """One parameter, all of it here."""
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
    """Factored second moment, no first moment, update clipping, updates scaled by the RMS of what they change.

    lr: relative to that RMS; GShard's is 1 / sqrt(max(t, 10000)) at update t. weight_decay: decoupled as in AdamW, per
    update a share lr · weight_decay of the weights, not scaled by RMS. A parameter is read as `Matrices.of` its shape,
    each matrix for itself, unless `lay_out` says what a tensor holds. float32 or float64.
    """

    def __init__(self, params: Any, lr: float, weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})
        self._contents: dict[Tensor, Contents] = {}

    def lay_out(self, tensor: Tensor, contents: Contents) -> None:
        """Say what a contiguous tensor of any shape holds."""
        self._contents[tensor] = contents

    def allocate(self, tensor: Tensor, updates: int) -> None:
        """Give a tensor the state it has after `updates` updates, zeros for moments; rows [B, R] and columns [B, C] of
        each matrix are whole on every process."""
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
        """Overwrites gradients. A collective of each tensor's processes."""
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
        """Move the means of squared gradients on; give the scale [B] of each parameter's matrices."""
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
        """Divide the gradient by the root of its mean squares, in place; give the sums of its squares then."""
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
