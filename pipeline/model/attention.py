"""Multi-head attention over packed rows.

B rows, L length of a row (queries), L2 length of a row of the attended side (keys), M model, N heads, D head dim.
"""

import torch
from torch import Tensor, nn

from pipeline.model.fused_attention import attend

MASKED = -1e9  # finite, so that a row of padding, which attends to nothing, gives numbers and not NaN


def segment_mask(query_segments_BL: Tensor, key_segments_BL: Tensor, *, causal: bool, dtype: torch.dtype) -> Tensor:
    """Return the additive mask [B, 1, L, L2] that lets a position see its own segment, and with `causal` nothing later.

    Segments count from 1 in a row. 0 is padding, which sees padding, so that its softmax is defined.
    """
    visible = query_segments_BL.unsqueeze(2) == key_segments_BL.unsqueeze(1)
    if causal:
        visible = visible.tril()
    mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, MASKED)
    return mask.unsqueeze(1)


class Attention(nn.Module):
    """Multi-head attention: projections without biases around scaled dot-product attention."""

    def __init__(self, dim: int, heads: int, head_dim: int) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, head_dim
        self.wq_MND = nn.Parameter(torch.empty(dim, heads, head_dim))
        self.wk_MND = nn.Parameter(torch.empty(dim, heads, head_dim))
        self.wv_MND = nn.Parameter(torch.empty(dim, heads, head_dim))
        self.wo_NDM = nn.Parameter(torch.empty(heads, head_dim, dim))

    def forward(self, x_BLM: Tensor, memory_BLM: Tensor, mask_B1LL: Tensor | None) -> Tensor:
        keys_BNLD, values_BNLD = self.keys_values(memory_BLM)
        return self.attend(x_BLM, keys_BNLD, values_BNLD, mask_B1LL)

    def keys_values(self, memory_BLM: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values [B, N, L2, D] of the side that queries attend to."""
        return self._split(memory_BLM, self.wk_MND), self._split(memory_BLM, self.wv_MND)

    def attend(self, x_BLM: Tensor, keys_BNLD: Tensor, values_BNLD: Tensor, mask_B1LL: Tensor | None) -> Tensor:
        """Return the output [B, L, M] of queries made from x over ready keys and values."""
        query_BNLD = self._split(x_BLM, self.wq_MND)
        heads_BNLD = attend(query_BNLD, keys_BNLD, values_BNLD, mask_B1LL)
        return heads_BNLD.transpose(1, 2).flatten(2) @ self.wo_NDM.flatten(0, 1)

    def _split(self, x_BLM: Tensor, weight_MND: Tensor) -> Tensor:
        projected = x_BLM @ weight_MND.flatten(1)
        return projected.view(*x_BLM.shape[:-1], self.heads, self.head_dim).transpose(1, 2)
