"""Multi-head attention over packed rows.

B rows, L length of a row (queries), L2 length of a row of the attended side (keys), M model, N heads, D head dim.
"""

import torch
from torch import Tensor, nn

from pipeline.model.fused_attention import attend
from pipeline.model.projection import project, project_jointly

MASKED = -1e9  # finite, because not every kernel computes with -inf


def segment_mask(query_segments_BL: Tensor, key_segments_BL: Tensor, *, causal: bool, dtype: torch.dtype) -> Tensor:
    """Return the additive mask [B, 1, L, L2] that lets a position see its own segment, and with `causal` nothing later.

    Segments count from 1 in a row. 0 is padding, which sees padding, or everything if no key is padding. So every
    query sees a key. With all keys masked, float16 has no defined softmax, and cuDNN's gradient may be NaN in any dtype
    (pytorch issue 196678).
    """
    visible = query_segments_BL.unsqueeze(2) == key_segments_BL.unsqueeze(1)
    if causal:
        visible = visible.tril()
    if key_segments_BL is not query_segments_BL:
        visible = visible | ~visible.any(dim=-1, keepdim=True)
    least = max(MASKED, torch.finfo(dtype).min)  # float16 holds no -1e9
    mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, least)
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
        if x_BLM is memory_BLM:
            keys_BNLD, values_BNLD, query_BNLD = self._heads(x_BLM, self.wk_MND, self.wv_MND, self.wq_MND)
        else:
            keys_BNLD, values_BNLD = self._heads(memory_BLM, self.wk_MND, self.wv_MND)
            (query_BNLD,) = self._heads(x_BLM, self.wq_MND)
        heads_BNLD = attend(query_BNLD, keys_BNLD, values_BNLD, mask_B1LL)
        return project(heads_BNLD.transpose(1, 2).flatten(2), self.wo_NDM)

    def _heads(self, x_BLM: Tensor, *weights_MND: Tensor) -> list[Tensor]:
        """Return the projections of x by each weight, [B, N, L, D]."""
        projected = project_jointly(x_BLM, *weights_MND)
        return [y.view(*x_BLM.shape[:-1], self.heads, self.head_dim).transpose(1, 2) for y in projected]
