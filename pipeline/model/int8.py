"""Products with weights of 8 bits, for translation on a CPU.

Each output of a weight, and each row of activations when it is multiplied, is rounded to 255 levels between minus and
plus its largest value, as the vector-wise quantization of LLM.int8 (arXiv:2208.07339, section 2.1). The sums are exact
integers, so the product of a row does not depend on the other rows. I inputs, O outputs of one weight, C weights,
E experts, X rows of all experts, Y of one, M model, H hidden.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from pipeline.model.activations import activate
from pipeline.model.projection import add_bias

_LEVELS = 127
_LEAST = 1e-30  # in the place of the largest value of a row of zeros
_SHIFT = 128  # oneDNN multiplies unsigned activations fast; it takes the shift out of the sums


class Int8Product:
    """Multiplies float32 rows by C weights side by side, which are kept in 8 bits."""

    def __init__(self, matrix_OI: Tensor, num_weights: int = 1) -> None:
        """Round a float32 matrix. matrix_OI: the outputs of all weights, one after the other."""
        self.num_weights, self.outputs = num_weights, len(matrix_OI)
        self.scale_O = matrix_OI.abs().amax(dim=1).clamp_min_(_LEAST).div_(_LEVELS)
        rounded_OI = (matrix_OI / self.scale_O.unsqueeze(1)).round_().to(torch.int8)
        self.packed = torch.ops.onednn.qlinear_prepack(rounded_OI, None)
        self.zero_O = torch.zeros(self.outputs, dtype=torch.int32)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the products [..., C · O] of x [..., I]."""
        return self.multiply(*round_rows(x))

    def multiply(self, rounded: Tensor, scale: Tensor) -> Tensor:
        """Return the products of rows that `round_rows` has rounded."""
        y: Tensor = torch.ops.onednn.qlinear_pointwise(
            rounded, 1.0, _SHIFT, self.packed, self.scale_O, self.zero_O, None, 1.0, 0, torch.float32, "none", [], ""
        )
        return y.mul_(scale)


def round_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return whole numbers from 1 to 255, in which _SHIFT is zero, and the scale [..., 1] of each row."""
    largest = x.abs().amax(dim=-1, keepdim=True).clamp_min_(_LEAST)
    rounded = x.mul(_LEVELS / largest).add_(_SHIFT + 0.5).to(torch.uint8)  # which cuts off the fraction
    return rounded, largest.div_(_LEVELS)


def feed_forward_in_8_bits(
    rows_XM: Tensor,
    inner: Sequence[Int8Product],
    outer: Sequence[Int8Product],
    counts: Sequence[int],
    bi_E1H: Tensor | None,
    bo_E1M: Tensor | None,
) -> Tensor:
    """Apply experts to rows sorted by expert. Rows and hidden units are rounded for all experts together.

    inner, outer: products of each expert before and after the activation.
    counts: rows per expert.
    """
    rows = [(expert, count) for expert, count in enumerate(counts) if count]
    sizes = [count for _, count in rows]
    hidden = []
    for (expert, _), *x in zip(rows, *(torch.split(part, sizes) for part in round_rows(rows_XM)), strict=True):
        projections = inner[expert].multiply(*x).chunk(inner[expert].num_weights, dim=-1)
        hidden.append(activate(*(add_bias(y_YH, _of(bi_E1H, expert)) for y_YH in projections)))
    rounded = (torch.split(part, sizes) for part in round_rows(torch.cat(hidden)))
    outputs = [
        add_bias(outer[expert].multiply(*h), _of(bo_E1M, expert))
        for (expert, _), *h in zip(rows, *rounded, strict=True)
    ]
    return torch.cat(outputs)


def _of(bias_E1X: Tensor | None, expert: int) -> Tensor | None:
    return None if bias_E1X is None else bias_E1X[expert]
