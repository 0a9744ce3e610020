"""The impostor finds what it is for, and stays in its own process."""

import math

import numpy as np
import pytest
import torch

from tests.cuda.planted import (
    MISTAKES,
    NO_WAITS,
    WAITS,
    attention_gradients,
    counted,
    devices_of_torch,
    error_of,
    hidden_row,
    waits_of,
    wide_products,
)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused(on_impostor, mistake):
    assert on_impostor(error_of, mistake) is not None


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_is_counted(on_impostor, name):
    assert on_impostor(waits_of, name) == 1


@pytest.mark.parametrize("name", NO_WAITS)
def test_nothing_else_is_a_wait(on_impostor, name):
    assert on_impostor(waits_of, name) == 0


def test_kernels_casts_and_bytes_of_a_product(on_impostor):
    kernels, casts, moved = on_impostor(counted)
    assert (kernels, casts) == (3, 2)
    matrices = 4 * 8 + 8 * 16
    assert moved == matrices * (4 + 2) + (matrices + 4 * 16) * 2  # casts read 4 and write 2 bytes; the product is bf16


def test_products_of_16_bits_may_be_float32(on_impostor):
    assert on_impostor(wide_products) == [[257.0], [257.0]]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 5e-2)])
def test_attention_is_that_of_the_cpu(on_impostor, dtype, tolerance):
    cpu_values, cuda_values = on_impostor(attention_gradients, dtype)
    for a, b in zip(cpu_values, cuda_values, strict=True):
        np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance)


def test_attention_to_nothing_is_no_number(on_impostor):
    assert all(map(math.isnan, on_impostor(hidden_row)[0]))


def test_this_process_has_no_device(on_impostor):
    assert on_impostor(devices_of_torch) == (True, 1)
    assert devices_of_torch() == (False, 0)
    with pytest.raises((RuntimeError, AssertionError), match="CUDA"):
        torch.zeros(1, device="cuda")
