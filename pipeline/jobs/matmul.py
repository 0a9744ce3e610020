"""Choose the library that multiplies float32 matrices on a CPU: MKL, which is torch's default, or oneDNN.

MKL uses only AVX2 on AMD's processors. oneDNN uses their AVX-512 and is about twice as fast there (measured: 214
against 99 GFLOP/s on one core, 1024³). torch takes oneDNN only if products may be rounded to bfloat16. Without bfloat16
matrix units (AMX) oneDNN does not round, and a test product checks that. The choice depends on the processor alone, so
that all processes and runs of one machine agree.
"""

import logging
from pathlib import Path

import torch

from pipeline.model.fused_attention import SWITCH

logger = logging.getLogger(__name__)

PROBE_SIZE = 256
PROBE_ERROR = 1e-3  # the error is about 3e-5 in float32 and 1e-1 in bfloat16


def choose_matmul(cpuinfo: str | None = None) -> str:
    """Set the library for this process and return its name, `onednn` or `mkl`. cpuinfo: text of /proc/cpuinfo."""
    if cpuinfo is None:
        path = Path("/proc/cpuinfo")
        cpuinfo = path.read_text(encoding="utf-8") if path.exists() else ""
    SWITCH.fp32_precision = "ieee"
    if not wide_amd(cpuinfo) or not torch._C._has_mkldnn:
        return "mkl"
    SWITCH.fp32_precision = "bf16"
    error = probe_error()
    if error > PROBE_ERROR:
        SWITCH.fp32_precision = "ieee"
        logger.warning("oneDNN rounds float32 products on this processor (error %.1e); using MKL", error)
        return "mkl"
    return "onednn"


def matmul_library() -> str:
    """Return the library that `choose_matmul` has set: `onednn` or `mkl`."""
    return "onednn" if SWITCH.fp32_precision == "bf16" else "mkl"


def wide_amd(cpuinfo: str) -> bool:
    """Return true for a processor of AMD with AVX-512 and without AMX."""
    words = set(cpuinfo.split())
    return "AuthenticAMD" in words and "avx512f" in words and "amx_bf16" not in words


def probe_error() -> float:
    """Return the largest error of a float32 product of standard normal matrices, compared with float64."""
    source = torch.Generator().manual_seed(1)
    a, b = (torch.randn(PROBE_SIZE, PROBE_SIZE, generator=source) for _ in range(2))
    return float((a @ b - a.double() @ b.double()).abs().max())
