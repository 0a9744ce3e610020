"""Build and load guard.cpp, by which a PyTorch for CPUs takes a device for one of CUDA.

PyTorch asks for hooks once, when it is imported, so `load_guard` comes first and imports nothing of PyTorch.
"""

import ctypes
import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

SOURCE = Path(__file__).with_name("guard.cpp")
CACHE = Path(__file__).resolve().parents[2] / ".pytest_cache" / "cuda_guard"
HEADERS = ("include", "include/torch/csrc/api/include")
HOOKS = "include/ATen/detail/CUDAHooksInterface.h"


def obstacle() -> str:
    """Return the reason why this machine cannot have the impostor; empty if it can. Imports torch."""
    import torch

    if torch.version.cuda is not None or torch.version.hip is not None:
        return "torch is built for GPUs here; the impostor stands in for what a build for CPUs lacks"
    if shutil.which("g++") is None:
        return "no g++"
    return "" if (_torch() / HOOKS).exists() else f"torch {torch.__version__} comes without its header {HOOKS}"


def build_guard() -> Path:
    """Return the built guard of this torch, which takes a few seconds to compile where it is not kept yet.

    Raises RuntimeError with the compiler's words if that fails, because this torch has other interfaces.
    """
    stamp = hashlib.sha256(SOURCE.read_bytes() + version("torch").encode() + str(_torch()).encode()).hexdigest()[:16]
    library = CACHE / f"guard-{stamp}.so"
    if not library.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as directory:
            built = Path(directory) / library.name
            _build(built)
            built.replace(library)  # several processes may build at once
    return library


def load_guard() -> None:
    """Load the guard into this process, for good."""
    assert "torch" not in sys.modules, "torch is imported and has looked for its hooks"
    ctypes.CDLL(str(build_guard()))


def _build(library: Path) -> None:
    torch, lib = _torch(), _torch() / "lib"
    command = ["g++", "-O1", "-shared", "-fPIC", "-std=c++20", *(f"-I{torch / header}" for header in HEADERS)]
    command += [str(SOURCE), "-o", str(library), f"-L{lib}", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{lib}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if result.returncode:
        raise RuntimeError(f"{SOURCE.name} does not compile with torch {version('torch')}:\n{result.stderr[-3000:]}")


def _torch() -> Path:
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent
