"""Multi-head attention over packed rows.

B rows, L length of a row (queries), L2 length of a row of the attended side (keys), M model, N heads, D head dim,
X = N · D.
"""

import torch
from torch import Tensor, nn

from pipeline.model.adapters import adapted
from pipeline.model.fused_attention import attend
from pipeline.model.projection import add_bias, project, project_jointly

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
    """Multi-head attention: projections, without biases unless asked for, around scaled dot-product attention."""

    zero_initialized = frozenset({"bq_X", "bk_X", "bv_X", "bo_M"})

    def __init__(self, dim: int, heads: int, head_dim: int, *, biases: bool = False) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, head_dim
        self.wq_MND = nn.Parameter(torch.empty(dim, heads, head_dim))
        self.wk_MND = nn.Parameter(torch.empty(dim, heads, head_dim))
        self.wv_MND = nn.Parameter(torch.empty(dim, heads, head_dim))
        self.wo_NDM = nn.Parameter(torch.empty(heads, head_dim, dim))
        self.bq_X, self.bk_X, self.bv_X = (
            nn.Parameter(torch.empty(heads * head_dim)) if biases else None for _ in range(3)
        )
        self.bo_M = nn.Parameter(torch.empty(dim)) if biases else None
        self.adapters = nn.ModuleDict()

    def forward(self, x_BLM: Tensor, memory_BLM: Tensor, mask_B1LL: Tensor | None) -> Tensor:
        if x_BLM is memory_BLM:
            keys_BNLD, values_BNLD, query_BNLD = self._heads(x_BLM, "kvq")
        else:
            keys_BNLD, values_BNLD = self._heads(memory_BLM, "kv")
            (query_BNLD,) = self._heads(x_BLM, "q")
        heads_BNLD = attend(query_BNLD, keys_BNLD, values_BNLD, mask_B1LL)
        joined_BLX = heads_BNLD.transpose(1, 2).flatten(2)
        return adapted(project(joined_BLX, self.wo_NDM, self.bo_M), joined_BLX, self.adapters, "wo_NDM")

    def _heads(self, x_BLM: Tensor, letters: str) -> list[Tensor]:
        """Return projections of x, [B, N, L, D]. letters: k for keys, v for values, q for queries, in order."""
        names = [f"w{letter}_MND" for letter in letters]
        biases_X = (getattr(self, f"b{letter}_X") for letter in letters)
        plain = map(add_bias, project_jointly(x_BLM, *(getattr(self, name) for name in names)), biases_X)
        projected = [adapted(y, x_BLM, self.adapters, name) for y, name in zip(plain, names, strict=True)]
        return [y.view(*x_BLM.shape[:-1], self.heads, self.head_dim).transpose(1, 2) for y in projected]
