"""The processor decides on the library of float32 products, and products stay float32."""

import json

import pytest
import torch

from pipeline.jobs import matmul
from pipeline.jobs.matmul import choose_matmul, probe_error, wide_amd

AMD = "vendor_id : AuthenticAMD\nflags : fpu avx2 avx512f avx512_bf16"


@pytest.fixture(autouse=True)
def _restored():
    before = torch.backends.mkldnn.matmul.fp32_precision
    yield
    torch.backends.mkldnn.matmul.fp32_precision = before


@pytest.mark.parametrize(
    ("cpuinfo", "wide"),
    [
        (AMD, True),
        ("vendor_id : AuthenticAMD\nflags : fpu avx2", False),
        ("vendor_id : GenuineIntel\nflags : fpu avx2 avx512f", False),
        (f"{AMD} amx_bf16", False),
        ("", False),
    ],
)
def test_only_wide_amd_processors_leave_mkl(cpuinfo, wide):
    assert wide_amd(cpuinfo) is wide
    assert (choose_matmul(cpuinfo) == "onednn") <= wide


def test_products_stay_float32_on_this_machine():
    choose_matmul()
    assert probe_error() < 1e-3


def test_what_rounds_is_not_used(monkeypatch, caplog):
    """A bound that is smaller than float32's own error simulates a processor that rounds."""
    monkeypatch.setattr(matmul, "PROBE_ERROR", 0.0)
    assert choose_matmul(AMD) == "mkl"
    assert torch.backends.mkldnn.matmul.fp32_precision == "ieee"
    assert "rounds float32 products" in caplog.text


def test_the_probe_sees_products_of_bfloat16():
    source = torch.Generator().manual_seed(1)
    a, b = (torch.randn(256, 256, generator=source) for _ in range(2))
    rounded = a.bfloat16().double() @ b.bfloat16().double()
    assert float((rounded - a.double() @ b.double()).abs().max()) > 10 * matmul.PROBE_ERROR


def test_processes_of_a_job_choose(alone):
    ledger = alone.directory / "log" / "ledger.json"
    assert json.loads(ledger.read_text())["matmul_library"] == choose_matmul()
