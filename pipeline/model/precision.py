"""The dtypes in which parts of the model compute, with and without autocast."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """Convert to float32. float64 stays."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def compute_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype in which a Linear would compute: autocast's dtype if autocast is on, except for float64."""
    device = x.device.type
    if x.dtype == torch.float64 or not torch.amp.is_autocast_available(device):
        return x.dtype
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def outside_autocast(x: Tensor) -> AbstractContextManager[None]:
    """Return a context in which operations on the device of x keep their dtype."""
    device = x.device.type
    available = torch.amp.is_autocast_available(device)  # not on the meta device
    return torch.autocast(device, enabled=False) if available else nullcontext()
