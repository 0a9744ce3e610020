"""Functions of the model that compute on a GPU in their own way, for comparison with float64 on a CPU.

They run on the impostor, or on a real GPU (`tests.cuda.impostor.cuda_device`). X rows of experts, M model, H hidden,
E experts; B rows of text, L positions, N heads, D head dim.
"""

from functools import partial

import torch

from pipeline.model.attention import segment_mask
from pipeline.model.fused_attention import attend, mask_dtype
from pipeline.model.moe.ragged_experts import feed_forward_grouped, feed_forward_padded, feed_forward_ragged
from tests.cuda.impostor import CUDA, cuda_device, on_cpu
from tests.cuda.projection import CASES, drawn

M, H = 16, 24
SEGMENTS_BL = torch.tensor([[1, 1, 2, 2, 2, 0, 0, 0], [1] * 8, [0] * 8])  # one row has only padding
COUNTS = {"ragged": [5, 0, 1, 6], "last empty": [3, 9, 0, 0], "one expert": [0, 12, 0, 0], "no rows": [0, 0, 0, 0]}


def grouped(counts, x_XM, wi_EMH, wo_EHM):
    """Apply experts by torch's grouped product, in bfloat16 alone."""
    return feed_forward_grouped(x_XM.bfloat16(), wi_EMH, wo_EHM, torch.tensor(counts, device=x_XM.device))


def padded(counts, x_XM, wi_EMH, wo_EHM):
    weights = wi_EMH.to(x_XM.dtype), wo_EHM.to(x_XM.dtype)
    return feed_forward_padded(x_XM, *weights, torch.tensor(counts, device=x_XM.device), max(1, *counts))


def ragged(counts, x_XM, wi_EMH, wo_EHM):
    return feed_forward_ragged(x_XM, wi_EMH, wo_EHM, torch.tensor(counts, device=x_XM.device))


def one_by_one(counts, x_XM, wi_EMH, wo_EHM):
    rows = torch.split(x_XM, counts)
    return torch.cat([(rows[e] @ wi_EMH[e]).relu() @ wo_EHM[e] for e in range(len(counts))])


def attention(causal, query_BNLD, key_BNLD, value_BNLD):
    """Attend in packed rows with padding."""
    segments_BL = SEGMENTS_BL.to(query_BNLD.device)
    mask = segment_mask(segments_BL, segments_BL, causal=causal, dtype=mask_dtype(query_BNLD))
    return attend(query_BNLD, key_BNLD, value_BNLD, mask)


def plain_attention(causal, query_BNLD, key_BNLD, value_BNLD):
    visible_BLL = SEGMENTS_BL.unsqueeze(2) == SEGMENTS_BL.unsqueeze(1)
    visible_BLL = visible_BLL.tril() if causal else visible_BLL
    score_BNLL = query_BNLD @ key_BNLD.mT / query_BNLD.shape[-1] ** 0.5
    return score_BNLL.masked_fill(~visible_BLL.unsqueeze(1), float("-inf")).softmax(dim=-1) @ value_BNLD


EXPERTS = {
    f"{function.__name__}, {name}": (
        partial(function, counts),
        partial(one_by_one, counts),
        [(sum(counts), M), (len(counts), M, H), (len(counts), H, M)],
    )
    for function in (grouped, padded, ragged)
    for name, counts in COUNTS.items()
}
ATTENTION = {
    f"attention, causal={causal}": (partial(attention, causal), partial(plain_attention, causal), [(3, 2, 8, 16)] * 3)
    for causal in (False, True)
}
KERNELS = {**CASES, **EXPERTS, **ATTENTION}  # the function, the same in plain operations, and the shapes of arguments
DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def results(function, inputs, dtype=None):
    """Return the value and the gradients of the inputs. dtype: of autocast."""
    with torch.autocast(inputs[0].device.type, dtype=dtype, enabled=dtype is not None):
        y = function(*inputs)
    goal = torch.randn(y.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    return y, *torch.autograd.grad(y, inputs, goal.to(y.dtype).to(y.device))


def compare(name, precision):
    """Return for the value and each gradient its dtype, its largest difference in parts of the largest number.

    The third is whether it is contiguous, so that autograd need not copy it.
    """
    function, plain, shapes = KERNELS[name]
    expected = results(plain, [value.detach().double().requires_grad_() for value in drawn(shapes)])
    with cuda_device():
        values = results(function, drawn(shapes, CUDA), DTYPES[precision])
        return [
            (str(result.dtype), difference(on_cpu(result.detach()), reference.detach()), result.is_contiguous())
            for result, reference in zip(values, expected, strict=True)
        ]


def difference(result, expected):
    """Return the largest difference in parts of the largest number. NaN if there is one."""
    if not expected.numel():
        return 0.0
    return float((result.double() - expected).abs().max() / expected.abs().max().clamp(min=1e-12))
