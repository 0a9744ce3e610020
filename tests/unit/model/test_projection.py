"""Products with weights on a CPU are torch's own, under autocast too. `tests/cuda/test_kernels.py` has a GPU's."""

import pytest
import torch

from tests.cuda.kernels import results
from tests.cuda.projection import CASES, drawn


@pytest.mark.parametrize("dtype", [None, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("name", CASES)
def test_they_are_plain_products(name, dtype):
    function, plain, shapes = CASES[name]
    inputs = drawn(shapes)
    assert all(map(torch.equal, results(function, inputs, dtype), results(plain, inputs, dtype)))
