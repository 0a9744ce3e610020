"""Rounding of a model's weights to 8 bits, for translation on a CPU. The arithmetic is in `pipeline.model.int8`."""

import torch
from torch import Tensor

from pipeline.model.feed_forward import FeedForward
from pipeline.model.int8 import Int8Product
from pipeline.model.moe.experts import Experts
from pipeline.model.moe.ragged_experts import inner_weights
from pipeline.model.transformer import Layer, Transformer


def quantize(model: Layer | Transformer) -> None:
    """Round float32 weights on a CPU in place: those of attention, networks, experts and, of a whole model, logits.

    Norms, gates, positions and the tables that tokens are looked up in stay. What is rounded already stays, too. The
    model can only translate afterwards.
    """
    for module in model.modules():
        if isinstance(module, Layer):
            own, cross = module.self_attention, module.cross_attention
            _round(own.wk_MND, own.wv_MND, own.wq_MND)
            _round(own.wo_NDM, inputs=own.wo_NDM.shape[:-1].numel())
            if cross is not None:
                _round(cross.wk_MND, cross.wv_MND)
                _round(cross.wq_MND)
                _round(cross.wo_NDM, inputs=cross.wo_NDM.shape[:-1].numel())
        elif isinstance(module, FeedForward):
            _round(*inner_weights(module.wi_MH, module.wu_MH))
            _round(module.wo_HM)
        elif isinstance(module, Experts):
            _round_experts(*inner_weights(module.wi_EMH, module.wu_EMH))
            _round_experts(module.wo_EHM)
    if isinstance(model, Transformer):
        table_VM = model.target_embedding_VM
        table_VM.int8 = Int8Product(table_VM.detach())  # type: ignore[attr-defined]


def is_rounded(name: str) -> bool:
    """Return whether `quantize` rounds a parameter, by its name. Embeddings that logits come from are kept as well."""
    owner, _, weight = name.rpartition(".")
    return weight.startswith("w") and owner.endswith(("attention", "feed_forward", "experts", "conditional.shared"))


@torch.no_grad()
def _round(*weights: Tensor, inputs: int = 0) -> None:
    """Give the first of several weights with the same input their product in 8 bits, and free the weights."""
    if hasattr(weights[0], "int8"):
        return
    matrix_OI = torch.cat([weight.reshape(inputs or len(weight), -1).T for weight in weights])
    weights[0].int8 = Int8Product(matrix_OI, len(weights))  # type: ignore[attr-defined]
    _free(weights)


@torch.no_grad()
def _round_experts(*weights_EIO: Tensor) -> None:
    """Do the same for each expert; the first weight gets a list of products."""
    if hasattr(weights_EIO[0], "int8"):
        return
    weights_EIO[0].int8 = [  # type: ignore[attr-defined]
        Int8Product(torch.cat([weight_IO.T for weight_IO in of_expert]), len(weights_EIO))
        for of_expert in zip(*weights_EIO, strict=True)
    ]
    _free(weights_EIO)


def _free(weights: tuple[Tensor, ...]) -> None:
    """Leave of each weight its shape. Whoever reads its numbers by mistake gets NaN."""
    for weight in weights:
        weight.data = torch.full((), torch.nan).expand(weight.shape)
