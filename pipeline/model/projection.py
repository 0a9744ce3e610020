"""Products of activations and weights, with few casts under autocast.

On a CPU, and without autocast, they are torch's own products; in translation, weights may have 8 bits
(`pipeline.model.int8`). On a GPU autocast would cast an input again for each
product and a weight again in each micro-batch, and would round the gradients of both to 16 bits. Here an input is cast
once for all weights that multiply it, weights with the same input form one matrix, `keep_copies` casts weights once in
a step, and the products write gradients of float32 tensors in float32, without a cast. A CPU would need more time so.
T tokens, I inputs of a product, O outputs of one weight, C weights, V vocabulary, E experts, Y rows of an expert.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pipeline.model.precision import compute_dtype


def project(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x · weight + bias. The first dimensions of the weight, flattened, are the last dimension of x."""
    return add_bias(project_jointly(x, weight)[0], bias)


def add_bias(y: Tensor, bias: Tensor | None) -> Tensor:
    """Return y + bias in the dtype of y, and y itself without a bias."""
    return y if bias is None else y + bias.to(y.dtype)


def project_jointly(x: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
    """Return x · weight for each of several weights of one shape [I, ...], on a GPU under autocast as one product."""
    if (product := in_8_bits(weights[0])) is not None:
        return torch.chunk(product(x), len(weights), dim=-1)
    if not _is_cast(x, weights[0]):
        return tuple(x @ weight.view(x.shape[-1], -1) for weight in weights)
    copy_IY = _copy(compute_dtype(x), *weights).view(x.shape[-1], -1)
    y_TY: Tensor = Product.apply(x.flatten(0, -2), copy_IY, False, *weights)  # type: ignore[no-untyped-call]
    if len(weights) == 1:
        return (y_TY.view(*x.shape[:-1], -1),)
    return y_TY.view(*x.shape[:-1], len(weights), -1).unbind(-2)


def side_by_side(*weights: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the product of x and several weights of one shape [I, ...], joined beforehand: [..., C · O].

    It serves many products without gradients, in the dtype of the weights.
    """
    product: Callable[[Tensor], Tensor] | None = in_8_bits(weights[0])
    if product is not None:
        return product
    return partial(torch.matmul, other=torch.cat([weight.flatten(1) for weight in weights], dim=1))


def in_8_bits(weight: Tensor) -> Any:
    """Return what `pipeline.decode.quantization` has put in the place of a weight, or None.

    Raises RuntimeError for such a weight where gradients are enabled, because its numbers are gone.
    """
    if torch.compiler.is_compiling():
        return None
    product = getattr(weight, "int8", None)
    if product is not None and torch.is_grad_enabled():
        raise RuntimeError("a model with weights of 8 bits can only translate; use torch.inference_mode")
    return product


def project_to_table(x_TI: Tensor, table_VI: Tensor) -> Tensor:
    """Return the products [T, V] of x and the rows of a table."""
    if (product := in_8_bits(table_VI)) is not None:
        rounded_TV: Tensor = product(x_TI)
        return rounded_TV
    if not _is_cast(x_TI, table_VI):
        return x_TI @ table_VI.T
    copy_IV = _copy(compute_dtype(x_TI), table_VI).T
    y_TV: Tensor = Product.apply(x_TI, copy_IV, True, table_VI)  # type: ignore[no-untyped-call]
    return y_TV


def project_each(x_EYI: Tensor, weight_EIO: Tensor) -> Tensor:
    """Return the products [E, Y, O] of each expert's rows and its weight."""
    if not _is_cast(x_EYI, weight_EIO):
        return torch.bmm(x_EYI, weight_EIO)
    copy_EIO = _copy(compute_dtype(x_EYI), weight_EIO)
    y_EYO: Tensor = Product.apply(x_EYI, copy_EIO, False, weight_EIO)  # type: ignore[no-untyped-call]
    return y_EYO


def keep_copies(weights: Iterable[Tensor]) -> None:
    """Keep the copies of weights in autocast's dtype, for several micro-batches, until `forget_copies`.

    Passes without gradients, as in validation, make their own copies.
    """
    for weight in weights:
        weight.copies = {}  # type: ignore[attr-defined]


def forget_copies(weights: Iterable[Tensor]) -> None:
    """Drop the copies of weights that are about to change."""
    for weight in weights:
        if hasattr(weight, "copies"):
            weight.copies.clear()


class Product(torch.autograd.Function):
    """Multiplies x by a copy of its weights in 16 bits. The gradients of x and of the weights have their dtypes.

    The copy holds C weights side by side [I, C · O], a table transposed [I, V], or one weight for each expert.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, copy: Tensor, transposed: bool, *weights: Tensor) -> Tensor:
        rounded = x.to(copy.dtype)
        ctx.save_for_backward(rounded, copy)
        ctx.transposed, ctx.num_weights, ctx.shape = transposed, len(weights), weights[0].shape
        ctx.dtypes = x.dtype, weights[0].dtype
        return rounded @ copy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, copy = ctx.saved_tensors
        need_x, _, _, *need_weights = ctx.needs_input_grad
        x_dtype, weight_dtype = ctx.dtypes
        dx = _multiply(grads[0], copy.mT, x_dtype) if need_x else None
        if not any(need_weights):
            gradients: Iterable[Tensor | None] = [None] * ctx.num_weights
        elif ctx.num_weights > 1:
            gradients = (
                gradient.view(ctx.shape) for gradient in _side_by_side(x, grads[0], ctx.num_weights, weight_dtype)
            )
        elif ctx.transposed:
            gradients = [_multiply(grads[0].mT, x, weight_dtype)]
        else:
            gradients = [_multiply(x.mT, grads[0], weight_dtype).view(ctx.shape)]
        return dx, None, None, *gradients


def _side_by_side(x_TI: Tensor, dy_TY: Tensor, num_weights: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Return the gradients [I, O] of weights side by side, each contiguous, so that autograd copies none."""
    dy_CTO = dy_TY.reshape(len(dy_TY), num_weights, -1).transpose(0, 1)
    return _multiply(x_TI.T.expand(num_weights, -1, -1), dy_CTO, dtype).unbind()


def _multiply(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a · b in their dtype or in float32, which a GPU's products can give at once."""
    return a @ b if a.dtype == dtype else (torch.mm if a.dim() == 2 else torch.bmm)(a, b, out_dtype=dtype)


def _is_cast(x: Tensor, weight: Tensor) -> bool:
    """Tell if a GPU casts the weight under autocast. Compiled code leaves that to autocast, and fuses the casts."""
    return x.is_cuda and weight.dtype != compute_dtype(x) and not torch.compiler.is_compiling()


def _copy(dtype: torch.dtype, *weights: Tensor) -> Tensor:
    """Return a copy of the weights, which is kept beside the first one if `keep_copies` said so."""
    kept: dict[Any, Tensor] | None = getattr(weights[0], "copies", None)
    if kept is None or not torch.is_grad_enabled():
        return _join(dtype, *weights)
    key = dtype, len(weights)
    if key not in kept:
        kept[key] = _join(dtype, *weights)
    return kept[key]


@torch.no_grad()
def _join(dtype: torch.dtype, *weights: Tensor) -> Tensor:
    """Cast one weight in its shape, or several weights [I, ...] into one matrix [I, C, O]."""
    if len(weights) == 1:
        return weights[0].to(dtype)
    rows = len(weights[0])
    joined_ICO = torch.empty(rows, len(weights), weights[0].numel() // rows, dtype=dtype, device=weights[0].device)
    for copy_IO, weight in zip(joined_ICO.unbind(1), weights, strict=True):
        copy_IO.copy_(weight.view(rows, -1))
    return joined_ICO
