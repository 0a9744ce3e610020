"""A batch: groups of packed rows, the unit of gating, micro-batching and data parallelism.

G groups, B rows of a batch (rows of a group times G), L length of a row on the source side, T on the target side.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Packed rows, each with several sentence pairs. All tensors are int64.

    encoder_tokens_BL: `tag pieces </s>` of each sentence.
    decoder_input_tokens_BT: `</s>` and the target shifted right.
    decoder_target_tokens_BT: `pieces </s>` of each sentence.
    *_segments: 1, 2, … for the sentences of a row, 0 for padding.
    *_positions: 0, 1, … from the start of each sentence.
    pair_BL, pair_BT: index of the language pair of each token, less than num_pairs; 0 for padding.
    """

    encoder_tokens_BL: Tensor
    encoder_segments_BL: Tensor
    encoder_positions_BL: Tensor
    decoder_input_tokens_BT: Tensor
    decoder_target_tokens_BT: Tensor
    decoder_segments_BT: Tensor
    decoder_positions_BT: Tensor
    pair_BL: Tensor
    pair_BT: Tensor
    num_pairs: int
    num_groups: int = 1

    def to(self, device: torch.device) -> "Batch":
        """Return the same batch on another device. From a CPU to CUDA the host does not wait: pinned memory is copied.

        A copy from other memory would wait for all work that the device has, such as the micro-batch before.
        """
        pin = device.type == "cuda"
        tensors: dict[str, Any] = {
            field.name: value.pin_memory().to(device, non_blocking=True) if pin else value.to(device)
            for field in fields(self)
            if isinstance(value := getattr(self, field.name), Tensor)
        }
        return replace(self, **tensors)
