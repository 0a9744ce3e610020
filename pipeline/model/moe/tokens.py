"""Facts about the tokens that a MoE layer routes: padding, sentences and language pairs.

G groups, S tokens of a group, B rows, L length of a row.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """The tokens of one side of a batch.

    valid_GS: False for padding, which takes no slot and no share of a mean.
    sentence_GS: a number for each sentence of a group; any number for padding.
    pair_GS: index of the language pair, less than `num_pairs`.
    """

    valid_GS: Tensor
    sentence_GS: Tensor
    pair_GS: Tensor
    num_pairs: int

    @classmethod
    def of_rows(cls, segments_BL: Tensor, pair_BL: Tensor, *, num_groups: int, num_pairs: int) -> "Tokens":
        """Describe packed rows. segments_BL: 1, 2, … for the sentences of a row, 0 for padding."""
        B, L = segments_BL.shape
        row_B1 = torch.arange(B, device=segments_BL.device).unsqueeze(1)
        return cls(
            valid_GS=(segments_BL > 0).view(num_groups, -1),
            sentence_GS=(segments_BL + row_B1 * (L + 1)).view(num_groups, -1),
            pair_GS=pair_BL.reshape(num_groups, -1),
            num_pairs=num_pairs,
        )

    @classmethod
    def of_mask(cls, valid_BL: Tensor, pair_B: Tensor | None = None, num_pairs: int = 1) -> "Tokens":
        """Describe one group with one sentence in each row.

        valid_BL: False for padding.
        pair_B: index of each row's language pair, less than `num_pairs`; None where no gate asks for it.
        """
        pair_B = torch.zeros_like(valid_BL[:, 0], dtype=torch.long) if pair_B is None else pair_B
        pair_BL = pair_B.unsqueeze(1).expand_as(valid_BL)
        return cls.of_rows(valid_BL.long(), pair_BL, num_groups=1, num_pairs=num_pairs)
