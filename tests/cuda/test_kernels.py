"""Functions with a way of their own on a GPU give what plain operations in float64 give on a CPU.

They run on the GPU of this machine, or on the impostor.
"""

import pytest

from tests.cuda.kernels import CASES, DTYPES, KERNELS, compare

# In parts of the largest number. bf16 rounds to 2^-9, fp16 to 2^-12 and fp32 to 2^-24, a few times after each other.
BOUNDS = {"fp32": 2**-20, "bf16": 2**-6, "fp16": 2**-9}


# torch groups products in bf16 alone
COMPARED = [(name, p) for name in KERNELS for p in DTYPES if p == "bf16" or not name.startswith("grouped")]


@pytest.mark.parametrize(("name", "precision"), COMPARED)
def test_values_and_gradients(on_cuda, name, precision):
    (dtype, error, _), *gradients = on_cuda(compare, name, precision)
    assert error < BOUNDS[precision]
    assert all(error < BOUNDS[precision] for _, error, _ in gradients)
    assert dtype == {"fp32": "torch.float32", "bf16": "torch.bfloat16", "fp16": "torch.float16"}[precision]
    assert {dtype for dtype, _, _ in gradients} == {"torch.float32"}
    if name in CASES:
        assert all(contiguous for _, _, contiguous in gradients[1:])
